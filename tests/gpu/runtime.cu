// runtime: as take, through the CUDA runtime as nvcc links it: arrays of cudaMallocArray.
#include <cstdio>
#include <cuda_runtime.h>

int main()
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
	cudaError_t error;
	cudaArray_t array;
	int got = 0;

	while ((error = cudaMallocArray(&array, &format, 2048, 2048)) == cudaSuccess)
		got += 64;
	printf("runtime %d %s\n", got, cudaGetErrorName(error));
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
