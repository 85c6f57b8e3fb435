/* Prints the last digit of each device's UUID, in CUDA's order; of none, cuInit's error. */
#include <stdio.h>

#include "cuda_abi.h"

CUresult cuInit(unsigned int Flags);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev);

int main(void)
{
	CUresult result = cuInit(0);
	int count = 0;
	CUuuid uuid;

	if (result == CUDA_SUCCESS)
		result = cuDeviceGetCount(&count);
	for (int i = 0; result == CUDA_SUCCESS && i < count; i++) {
		result = cuDeviceGetUuid_v2(&uuid, i);
		printf("%d", uuid.bytes[15]);
	}
	if (result != CUDA_SUCCESS)
		printf("error %d", (int)result);
	printf("\n");
	return 0;
}
