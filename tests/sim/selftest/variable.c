/*
 * The driver's answers about managed variables, on which the accounting of these variables relies.
 * The test has no figures of memory, so a real driver must pass it as well.
 */
#include "selftest.h"

#include <stdlib.h>

static const char ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
			  ".visible .global .attribute(.managed) .align 8 .b8 big[6291456];\n"
			  ".visible .global .align 4 .b8 plain[4];\n";

static CUresult ask(CUdeviceptr address, unsigned *ret_managed)
{
	*ret_managed = 7;
	return cuPointerGetAttribute(ret_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
}

static unsigned is_managed(CUdeviceptr address)
{
	unsigned managed;

	CHECK_OK(ask(address, &managed));
	return managed;
}

static void test_look_ups(CUlibrary library, CUdeviceptr *ret_big)
{
	CUdeviceptr big, plain, again;
	size_t size;

	CHECK_OK(cuLibraryGetManaged(&big, &size, library, "big"));
	CHECK_EQUAL(size, 6 * MIB);
	CHECK_EQUAL(cuLibraryGetManaged(&plain, NULL, library, "plain"), CUDA_ERROR_NOT_FOUND);
	CHECK_EQUAL(cuLibraryGetManaged(NULL, NULL, library, "big"), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuLibraryGetGlobal(&plain, NULL, library, "plain"));
	CHECK_OK(cuLibraryGetGlobal(&again, NULL, library, "big"));
	CHECK_EQUAL(again, big);
	CHECK_EQUAL(is_managed(plain), 0);
	CHECK_EQUAL(is_managed(big), 1);
	CHECK_EQUAL(cuMemFree_v2(big), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemFreeAsync(big, NULL), CUDA_ERROR_INVALID_VALUE);
	*ret_big = big;
}

/* Of a library: from the first look-up to the unload, also while no context is current. */
static void test_library(CUcontext context)
{
	CUdeviceptr big, again;
	CUlibrary library;
	unsigned managed;

	CHECK_OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
	test_look_ups(library, &big);
	CHECK_OK(cuCtxSetCurrent(NULL));
	CHECK_EQUAL(is_managed(big), 1);
	CHECK_OK(cuLibraryGetManaged(&again, NULL, library, "big"));
	CHECK_EQUAL(again, big);
	CHECK_OK(cuLibraryUnload(library));
	CHECK_EQUAL(ask(big, &managed), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuCtxSetCurrent(context));
	CHECK_EQUAL(ask(big, &managed), CUDA_ERROR_INVALID_VALUE);
}

/* Of a module: to its unload, or to the end of its context. */
static void test_module(CUcontext context)
{
	CUdeviceptr first, second;
	CUcontext other;
	CUmodule module;
	unsigned managed;
	size_t size;

	CHECK_OK(cuModuleLoadData(&module, ptx));
	CHECK_OK(cuModuleGetGlobal_v2(&first, &size, module, "big"));
	CHECK_EQUAL(size, 6 * MIB);
	CHECK_EQUAL(is_managed(first), 1);
	CHECK_OK(cuCtxCreate_v2(&other, 0, 0));
	CHECK_EQUAL(is_managed(first), 1);
	CHECK_OK(cuModuleLoadData(&module, ptx));
	CHECK_OK(cuModuleGetGlobal_v2(&second, &size, module, "big"));
	CHECK_EQUAL(is_managed(second), 1);
	CHECK_OK(cuCtxDestroy_v2(other));
	CHECK_EQUAL(ask(second, &managed), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuCtxSetCurrent(context));
	CHECK_EQUAL(ask(second, &managed), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(is_managed(first), 1);
}

int main(void)
{
	CUcontext context;

	selftest_begin("1x8G");
	setenv("VGPU_SIM_MODULE_MIB", "30", 1);
	context = selftest_context();
	test_library(context);
	test_module(context);
	return 0;
}
