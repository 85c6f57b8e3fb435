/*
 * Loads code images (files) as modules and as libraries, and prints what the driver says of them; a
 * kernel of each is launched. "--memory" instead prints how big the GPU seems, and what comes of an
 * allocation of 2 GiB.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"

#define CU_HOOK(name, class, parameters, arguments) CUresult name parameters;
#define CU_CALL(name, class, parameters)            CUresult name parameters;
#define CU_SIM(name, class, parameters)             CUresult name parameters;
#include "cuda.def"

#define MUST(call) must(call, #call)

static void must(CUresult result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "%s is %d\n", what, (int)result);
	exit(1);
}

static void describe(CUfunction function)
{
	const char *name;
	size_t offset, bytes;
	int threads, shared;

	MUST(cuFuncGetName(&name, function));
	MUST(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
	MUST(cuFuncGetAttribute(&shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function));
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

	MUST(cuModuleGetGlobal_v2(&address, &bytes, module, name));
	MUST(cuMemcpyDtoH_v2(&first, address, sizeof first));
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

	MUST(cuModuleLoad(&module, path));
	MUST(cuModuleGetFunctionCount(&count, module));
	MUST(cuModuleEnumerateFunctions(functions, 8, module));
	for (unsigned i = 0; i < count && i < 8; i++)
		describe(functions[i]);
	describe_variable(module, "counters");
	describe_variable(module, "started");
	describe_variable(module, "weights");
	MUST(cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0));
	MUST(cuLibraryGetKernelCount(&kernels, library));
	if (kernels != count)
		must(CUDA_ERROR_UNKNOWN, "the library's number of kernels");
	MUST(cuLibraryGetKernel(&kernel, library, "first"));
	MUST(cuKernelGetFunction(&launched, kernel));
	MUST(cuLaunchKernel(launched, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
	MUST(cuCtxSynchronize());
	MUST(cuLibraryUnload(library));
	MUST(cuModuleUnload(module));
}

static void memory(void)
{
	size_t left, total;
	CUdeviceptr address;

	MUST(cuMemGetInfo_v2(&left, &total));
	printf("total=%zu MiB", total >> 20);
	printf(" 2GiB=%d\n", (int)cuMemAlloc_v2(&address, (size_t)2 << 30));
}

int main(int argc, char **argv)
{
	CUcontext context;

	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	MUST(cuCtxSetCurrent(context));
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--memory"))
			memory();
		else
			load(argv[i]);
	}
	return 0;
}
