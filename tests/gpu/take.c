/*
 * take PATH [STEP_MIB]: takes device memory through one path of the driver, in steps, until it is
 * refused; prints "PATH MIB ERROR" and waits for its standard input to end, so that others can look
 * at what the device really holds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"

#define CU_HOOK(name, class, parameters, arguments) CUresult name parameters;
#define CU_CALL(name, class, parameters)            CUresult name parameters;
#define CU_SIM(name, class, parameters)             CUresult name parameters;
#include "cuda.def"

#define MIB      ((size_t)1 << 20)
#define MOST_MIB 32768 /* of what an unlimited run takes: the card may have other users */

static CUresult take_plain(size_t bytes)
{
	CUdeviceptr address;

	return cuMemAlloc_v2(&address, bytes);
}

static CUresult take_tiny(size_t bytes)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t taken = 0; taken < bytes && result == CUDA_SUCCESS; taken += 1024)
		result = take_plain(1024);
	return result;
}

/* Sizes that end just behind a granule. */
static CUresult take_uneven(size_t bytes)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t taken = 0; taken < bytes && result == CUDA_SUCCESS; taken += 4 * MIB)
		result = take_plain(2 * MIB + 1);
	return result;
}

static CUresult take_managed(size_t bytes)
{
	CUdeviceptr address;
	CUresult result = cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL);

	if (result == CUDA_SUCCESS)
		result = cuMemsetD8_v2(address, 1, bytes);
	if (result == CUDA_SUCCESS)
		result = cuCtxSynchronize();
	return result;
}

static CUresult take_pitch(size_t bytes)
{
	CUdeviceptr address;
	size_t pitch;

	return cuMemAllocPitch_v2(&address, &pitch, 1000, bytes / 1024, 4);
}

/* A further context each time, whatever the step. */
static CUresult take_context(size_t bytes)
{
	CUcontext context;

	(void)bytes;
	return cuCtxCreate_v2(&context, 0, 0);
}

static const struct {
	const char *name;
	CUresult (*take)(size_t bytes);
} paths[] = {
	{"alloc", take_plain},     {"tiny", take_tiny},   {"uneven", take_uneven},
	{"managed", take_managed}, {"pitch", take_pitch}, {"context", take_context},
};

static CUresult take_all(const char *name, size_t step_mib, size_t *ret_mib)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	size_t got = 0;

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		if (strcmp(paths[i].name, name) != 0)
			continue;
		while (got < MOST_MIB && (result = paths[i].take(step_mib * MIB)) == CUDA_SUCCESS)
			got += step_mib;
	}
	*ret_mib = got;
	return result;
}

int main(int argc, char **argv)
{
	size_t step_mib = argc > 2 ? strtoul(argv[2], NULL, 10) : 64, got = 0;
	const char *name = "no error";
	CUcontext context;
	CUresult result;

	if (argc < 2 || !step_mib) {
		fprintf(stderr, "usage: take alloc|tiny|uneven|managed|pitch|context [STEP_MIB]\n");
		return 2;
	}
	result = cuInit(0);
	if (result == CUDA_SUCCESS)
		result = cuDevicePrimaryCtxRetain(&context, 0);
	if (result == CUDA_SUCCESS)
		result = cuCtxSetCurrent(context);
	if (result == CUDA_SUCCESS)
		result = take_all(argv[1], step_mib, &got);
	cuGetErrorName(result, &name);
	printf("%s %zu %s\n", argv[1], got, result == CUDA_SUCCESS ? "not-refused" : name);
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
