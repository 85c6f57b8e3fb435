/*
 * Loads code images (files) as modules and as libraries, and prints what the driver says of them; a
 * kernel of each is launched. "--memory" instead prints how big the GPU seems, and what comes of an
 * allocation of 2 GiB.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cuda_abi.h"

#define CU_HOOK(name, class, parameters, arguments) CUresult name parameters;
#define CU_CALL(name, class, parameters)            CUresult name parameters;
#define CU_SIM(name, class, parameters)             CUresult name parameters;
#include "cuda.def"

static void describe(CUfunction function)
{
	const char *name;
	size_t offset, bytes;
	int threads, shared;

	CHECK_OK(cuFuncGetName(&name, function));
	CHECK_OK(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
	CHECK_OK(cuFuncGetAttribute(&shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function));
	printf("%s threads=%d shared=%d", name, threads, shared);
	for (size_t i = 0; !cuFuncGetParamInfo(function, i, &offset, &bytes); i++)
		printf(" %zu+%zu", offset, bytes);
	printf("\n");
}

static void describe_variable(CUmodule module, const char *name)
{
	CUdeviceptr address;
	uint32_t first;
	size_t bytes;

	CHECK_OK(cuModuleGetGlobal_v2(&address, &bytes, module, name));
	CHECK_OK(cuMemcpyDtoH_v2(&first, address, sizeof first));
	printf("%s bytes=%zu first=%" PRIx32 "\n", name, bytes, first);
}

static void load(const char *path)
{
	CUfunction functions[8], launched;
	unsigned count, kernels;
	CUlibrary library;
	CUkernel kernel;
	CUmodule module;
	uint64_t parameter = 0;
	void *parameters[] = {&parameter, &parameter, &parameter};

	CHECK_OK(cuModuleLoad(&module, path));
	CHECK_OK(cuModuleGetFunctionCount(&count, module));
	CHECK_OK(cuModuleEnumerateFunctions(functions, 8, module));
	for (unsigned i = 0; i < count && i < 8; i++)
		describe(functions[i]);
	describe_variable(module, "counters");
	describe_variable(module, "started");
	describe_variable(module, "weights");
	CHECK_OK(cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0));
	CHECK_OK(cuLibraryGetKernelCount(&kernels, library));
	CHECK_EQUAL(kernels, count);
	CHECK_OK(cuLibraryGetKernel(&kernel, library, "first"));
	CHECK_OK(cuKernelGetFunction(&launched, kernel));
	CHECK_OK(cuLaunchKernel(launched, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
	CHECK_OK(cuCtxSynchronize());
	CHECK_OK(cuLibraryUnload(library));
	CHECK_OK(cuModuleUnload(module));
}

static void memory(void)
{
	size_t left, total;
	CUdeviceptr address;

	CHECK_OK(cuMemGetInfo_v2(&left, &total));
	printf("total=%zu MiB", total >> 20);
	printf(" 2GiB=%d\n", (int)cuMemAlloc_v2(&address, (size_t)2 << 30));
}

int main(int argc, char **argv)
{
	CUcontext context;

	CHECK_OK(cuInit(0));
	CHECK_OK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK_OK(cuCtxSetCurrent(context));
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--memory"))
			memory();
		else
			load(argv[i]);
	}
	return 0;
}
