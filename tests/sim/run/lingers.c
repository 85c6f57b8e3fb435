/* A CUDA program that exits, makes the file argv[1] when its slot is empty, and lives on for long.
 */
#include <stdio.h>

#include "cuda_abi.h"

extern const char *lingering_path;

CUresult cuInit(unsigned int flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);

int main(int argc, char **argv)
{
	CUcontext context;

	if (argc != 2 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0))
		return 1;
	lingering_path = argv[1];
	return 0;
}
