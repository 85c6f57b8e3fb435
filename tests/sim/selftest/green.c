/*
 * Green contexts: what they cost, and that what is made in them is the primary one's, as measured
 * on a real driver.
 */
#include "selftest.h"

#include <unistd.h>

static uint64_t start; /* what the context costs */

static uint64_t held(void)
{
	uint64_t used = selftest_used(0);

	CHECK_EQUAL(selftest_process_bytes(0, getpid()), used - FIRST);
	return used - start;
}

/* A share of that many multiprocessors. */
static CUdevResourceDesc share(unsigned count)
{
	CUdevResource all, group, rest;
	CUdevResourceDesc desc;
	unsigned groups = 0;

	CHECK_OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	CHECK_EQUAL(all.smCount, 132);
	CHECK_OK(cuDevSmResourceSplitByCount(NULL, &groups, &all, NULL, 0, count));
	CHECK_EQUAL(groups, 132 / ((count + 7) / 8 * 8));
	groups = 1;
	CHECK_OK(cuDevSmResourceSplitByCount(&group, &groups, &all, &rest, 0, count));
	CHECK_EQUAL(groups, 1);
	CHECK_EQUAL(group.smCount, (count + 7) / 8 * 8);
	CHECK_EQUAL(rest.smCount, 132 - group.smCount);
	CHECK_EQUAL(cuDevSmResourceSplitByCount(&group, &groups, &rest, NULL, 0, 132),
		    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
	CHECK_OK(cuDevResourceGenerateDesc(&desc, &group, 1));
	return desc;
}

static void test_refused(void)
{
	CUdevResourceDesc desc = share(16);
	CUgreenCtx green;

	CHECK_EQUAL(cuGreenCtxCreate(&green, desc, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuGreenCtxCreate(&green, desc, 1, 1), CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQUAL(selftest_used(0), 0);
}

/* Without a description it has the whole device. */
static void test_undescribed(void)
{
	CUgreenCtx green;

	CHECK_OK(cuGreenCtxCreate(&green, NULL, 0, 1));
	CHECK_OK(cuGreenCtxDestroy(green));
}

/* A green context makes the primary context, and ends it with the last reference, as cuda.h says.
 */
static void test_primary(void)
{
	CUgreenCtx green, other;
	unsigned flags;
	int active;

	CHECK_OK(cuGreenCtxCreate(&green, share(16), 0, 1));
	CHECK_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CHECK_EQUAL(active, 1);
	CHECK_OK(cuGreenCtxCreate(&other, share(16), 0, 1));
	CHECK_OK(cuGreenCtxDestroy(green));
	CHECK_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CHECK_EQUAL(active, 1);
	CHECK_OK(cuGreenCtxDestroy(other));
	CHECK_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CHECK_EQUAL(active, 0);
	CHECK_EQUAL(selftest_used(0), 3 * MIB);
}

static void test_cost(void)
{
	CUgreenCtx green, other;
	uint64_t cost;

	CHECK_OK(cuGreenCtxCreate(&green, share(128), 0, 1));
	cost = held();
	CHECK(cost >= 4 * MIB && cost <= 18 * MIB);
	CHECK_OK(cuGreenCtxDestroy(green));
	CHECK_EQUAL(cuGreenCtxDestroy(green), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(held(), cost); /* the primary context keeps it */
	CHECK_OK(cuGreenCtxCreate(&green, share(128), 0, 1));
	CHECK_EQUAL(held(), cost);
	CHECK_OK(cuGreenCtxCreate(&other, share(8), 0, 1));
	CHECK_EQUAL(held(), cost + 4 * MIB);
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	CHECK_EQUAL(selftest_used(0), 3 * MIB);
	CHECK_EQUAL(cuGreenCtxDestroy(green), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	selftest_context();
	CHECK_EQUAL(held(), 0);
}

/* What is made in it outlives it. */
static void test_memory(void)
{
	static const char ptx[] =
		".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry nothing() { ret; }";
	CUcontext primary, context, whose;
	CUdeviceptr p;
	CUstream stream;
	CUgreenCtx green;
	CUmodule module;
	CUfunction function;
	uint64_t cost;

	CHECK_OK(cuCtxGetCurrent(&primary));
	CHECK_OK(cuGreenCtxCreate(&green, share(16), 0, 1));
	cost = held();
	CHECK_OK(cuCtxFromGreenCtx(&context, green));
	CHECK(context != primary);
	CHECK_EQUAL(cuCtxDestroy_v2(context), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_OK(cuCtxPushCurrent_v2(context));
	CHECK_OK(cuMemAlloc_v2(&p, 64 * MIB));
	CHECK_OK(cuPointerGetAttribute(&whose, CU_POINTER_ATTRIBUTE_CONTEXT, p));
	CHECK(whose == primary);
	CHECK_OK(cuModuleLoadData(&module, ptx));
	CHECK_OK(cuModuleGetFunction(&function, module, "nothing"));
	CHECK_EQUAL(cuGreenCtxStreamCreate(&stream, green, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuGreenCtxStreamCreate(&stream, green, 1, 0));
	CHECK_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
	CHECK_OK(cuStreamSynchronize(stream));
	CHECK_OK(cuCtxPopCurrent_v2(NULL));
	CHECK_OK(cuGreenCtxDestroy(green));
	CHECK_EQUAL(cuCtxPushCurrent_v2(context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CHECK_EQUAL(held(), cost + 64 * MIB);
	CHECK_OK(cuMemFree_v2(p));
	CHECK_OK(cuModuleUnload(module));
	CHECK_EQUAL(held(), cost);
}

int main(void)
{
	selftest_begin("1x8G");
	CHECK_OK(cuInit(0));
	test_refused();
	test_undescribed();
	test_primary();
	selftest_context();
	start = selftest_used(0);
	test_cost();
	test_memory();
	return 0;
}
