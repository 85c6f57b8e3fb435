/*
 * Modules and libraries: where they come from, what they cost, and when they give it back.
 */
#include "selftest.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char ptx[] =
	".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry nothing() { ret; }";
static const char managed_ptx[] =
	".version 8.0\n.target sm_90\n.visible .global .attribute(.managed) .b8 big[6291456];\n"
	".visible .global .b8 plain[4];";
static uint64_t start; /* what the contexts cost */
static char path[] = "/tmp/vgpu-selftest-ptx-XXXXXX";

static uint64_t held(unsigned gpu)
{
	return selftest_used(gpu) - start;
}

static void path_remove(void)
{
	unlink(path);
}

static void path_write(void)
{
	int fd = mkstemp(path);

	CHECK(fd >= 0);
	atexit(path_remove);
	CHECK_EQUAL(write(fd, ptx, sizeof ptx - 1), sizeof ptx - 1);
	close(fd);
}

static void test_modules(void)
{
	CUmodule modules[4];
	CUfunction function;
	CUcontext context;
	CUdeviceptr p;
	size_t size;

	CHECK_OK(cuModuleLoadData(&modules[0], ptx));
	CHECK_OK(cuModuleLoadDataEx(&modules[1], ptx, 0, NULL, NULL));
	CHECK_OK(cuModuleLoadFatBinary(&modules[2], ptx));
	CHECK_OK(cuModuleLoad(&modules[3], path));
	CHECK_EQUAL(held(0), 4 * 30 * MIB);
	CHECK_EQUAL(selftest_process_bytes(0, getpid()), CONTEXT + 4 * 30 * MIB);
	CHECK_OK(cuModuleGetFunction(&function, modules[3], "nothing"));
	CHECK_EQUAL(cuModuleGetGlobal_v2(&p, &size, modules[3], "nothing"), CUDA_ERROR_NOT_FOUND);
	for (int i = 0; i < 4; i++)
		CHECK_OK(cuModuleUnload(modules[i]));
	CHECK_EQUAL(cuModuleUnload(modules[0]), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(held(0), 0);
	CHECK_EQUAL(cuModuleLoad(&modules[0], "/nowhere"), CUDA_ERROR_FILE_NOT_FOUND);
	CHECK_EQUAL(cuModuleLoadData(&modules[0], "no code"), CUDA_ERROR_INVALID_IMAGE);
	CHECK_EQUAL(held(0), 0);
	CHECK_OK(cuMemAlloc_v2(&p, 8 * GIB - start - 28 * MIB));
	CHECK_EQUAL(cuModuleLoadData(&modules[0], ptx), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_OK(cuMemFree_v2(p));
	CHECK_OK(cuCtxCreate_v2(&context, 0, 0));
	CHECK_OK(cuModuleLoadData(&modules[0], ptx));
	CHECK_OK(cuCtxDestroy_v2(context));
	CHECK_EQUAL(held(0), 0);
}

/* Loaded where the context is, and elsewhere when it is wanted there; and it outlives contexts. */
static void test_libraries(void)
{
	CUcontext second;
	CUlibrary library, file;
	CUkernel kernel;
	CUfunction function;
	CUmodule module;
	CUdeviceptr p;
	size_t size;

	CHECK_OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
	CHECK_EQUAL(held(0), 30 * MIB);
	CHECK_OK(cuLibraryLoadFromFile(&file, path, NULL, NULL, 0, NULL, NULL, 0));
	CHECK_EQUAL(held(0), 2 * 30 * MIB);
	CHECK_OK(cuLibraryUnload(file));
	CHECK_EQUAL(cuLibraryUnload(file), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(held(0), 30 * MIB);
	CHECK_EQUAL(cuLibraryGetKernel(&kernel, library, "absent"), CUDA_ERROR_NOT_FOUND);
	CHECK_OK(cuLibraryGetKernel(&kernel, library, "nothing"));
	CHECK_EQUAL(cuLibraryGetGlobal(&p, &size, library, "nothing"), CUDA_ERROR_NOT_FOUND);
	CHECK_OK(cuLibraryGetModule(&module, library));
	CHECK_OK(cuModuleGetFunction(&function, module, "nothing"));
	CHECK_EQUAL(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
	CHECK_OK(cuKernelGetFunction(&function, kernel));
	CHECK_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	CHECK_OK(cuLaunchKernel((CUfunction)(void *)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	CHECK_EQUAL(held(0), 30 * MIB);
	CHECK_EQUAL(selftest_used(1), 0);
	CHECK_OK(cuCtxCreate_v2(&second, 0, 1));
	CHECK_EQUAL(held(1), 0);
	CHECK_OK(cuKernelGetFunction(&function, kernel));
	CHECK_EQUAL(held(1), 30 * MIB);
	CHECK_OK(cuCtxDestroy_v2(second));
	CHECK_EQUAL(selftest_used(1), 3 * MIB + 30 * MIB);
	CHECK_OK(cuLibraryUnload(library));
	CHECK_EQUAL(selftest_used(1), 3 * MIB);
	CHECK_EQUAL(held(0), 0);
	CHECK_EQUAL(cuModuleGetFunction(&function, module, "nothing"), CUDA_ERROR_INVALID_HANDLE);
}

/* A library's managed variables are there once for all GPUs, from the first GPU where it is loaded
 * to its unload. They are in no process's figure. variable.c has what calls say of them. */
static void test_managed(void)
{
	long long figure = selftest_process_bytes(0, getpid());
	CUcontext first, second;
	CUlibrary library;
	CUdeviceptr big;
	size_t size;

	CHECK_OK(cuCtxGetCurrent(&first));
	CHECK_OK(cuLibraryLoadData(&library, managed_ptx, NULL, NULL, 0, NULL, NULL, 0));
	CHECK_OK(cuLibraryGetManaged(&big, &size, library, "big"));
	CHECK_EQUAL(size, 6 * MIB);
	CHECK_EQUAL(held(0), 30 * MIB + 2 * MIB + 6 * MIB);
	CHECK_EQUAL(selftest_process_bytes(0, getpid()) - figure, 32 * MIB);
	CHECK_OK(cuCtxCreate_v2(&second, 0, 1));
	CHECK_OK(cuLibraryGetGlobal(&big, NULL, library, "big"));
	CHECK_EQUAL(held(0), 30 * MIB + 2 * MIB + 6 * MIB);
	CHECK_OK(cuCtxDestroy_v2(second));
	CHECK_OK(cuCtxSetCurrent(first));
	CHECK_OK(cuLibraryUnload(library));
	CHECK_EQUAL(held(0), 0);
}

int main(void)
{
	selftest_begin("2x8G");
	setenv("VGPU_SIM_MODULE_MIB", "30", 1);
	path_write();
	selftest_context();
	start = selftest_used(0);
	test_modules();
	selftest_context();
	test_libraries();
	test_managed();
	return 0;
}
