/*
 * A CUDA program for those who steer its slice: launches an empty kernel and asks for the memory's
 * size, over and over, and keeps in the file argv[1] what it sees: "TOTAL-MIB LAUNCHES".
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda_abi.h"

CUresult cuInit(unsigned int flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuMemGetInfo_v2(size_t *free, size_t *total);
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream);

static void must(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "steered: %s: %d\n", what, (int)result);
	exit(1);
}

static void tell(const char *path, size_t total, unsigned long launches)
{
	char beside[4096];
	FILE *file;

	snprintf(beside, sizeof(beside), "%s.new", path);
	file = fopen(beside, "w");
	if (!file || fprintf(file, "%zu %lu\n", total >> 20, launches) < 0 || fclose(file) != 0 ||
	    rename(beside, path) != 0)
		exit(2);
}

int main(int argc, char **argv)
{
	CUcontext context;
	CUdeviceptr block;
	size_t available, total;

	if (argc != 2)
		return 2;
	must(cuInit(0), "cuInit");
	must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	must(cuMemAlloc_v2(&block, 4096), "cuMemAlloc");
	for (unsigned long launches = 1;; launches++) {
		must(cuMemsetD8Async(block, 0, 4096, NULL), "cuMemsetD8Async");
		must(cuMemGetInfo_v2(&available, &total), "cuMemGetInfo");
		tell(argv[1], total, launches);
		usleep(2000);
	}
}
