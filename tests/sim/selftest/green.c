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

	CHECK_EQ(selftest_process_bytes(0, getpid()), used - FIRST);
	return used - start;
}

/* A share of that many multiprocessors. */
static CUdevResourceDesc share(unsigned count)
{
	CUdevResource all, group, rest;
	CUdevResourceDesc desc;
	unsigned groups = 0;

	CHECK_EQ(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS);
	CHECK_EQ(all.smCount, 132);
	CHECK_EQ(cuDevSmResourceSplitByCount(NULL, &groups, &all, NULL, 0, count), CUDA_SUCCESS);
	CHECK_EQ(groups, 132 / ((count + 7) / 8 * 8));
	groups = 1;
	CHECK_EQ(cuDevSmResourceSplitByCount(&group, &groups, &all, &rest, 0, count), CUDA_SUCCESS);
	CHECK_EQ(groups, 1);
	CHECK_EQ(group.smCount, (count + 7) / 8 * 8);
	CHECK_EQ(rest.smCount, 132 - group.smCount);
	CHECK_EQ(cuDevSmResourceSplitByCount(&group, &groups, &rest, NULL, 0, 132),
		 CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
	CHECK_EQ(cuDevResourceGenerateDesc(&desc, &group, 1), CUDA_SUCCESS);
	return desc;
}

static void test_refused(void)
{
	CUdevResourceDesc desc = share(16);
	CUgreenCtx green;

	CHECK_EQ(cuGreenCtxCreate(&green, desc, 0, 1), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQ(cuGreenCtxCreate(&green, desc, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuGreenCtxCreate(&green, NULL, 0, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuGreenCtxCreate(&green, desc, 1, 1), CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQ(selftest_used(0), 0);
}

static void test_cost(void)
{
	CUgreenCtx green, other;
	uint64_t cost;

	CHECK_EQ(cuGreenCtxCreate(&green, share(128), 0, 1), CUDA_SUCCESS);
	cost = held();
	CHECK(cost >= 4 * MIB && cost <= 18 * MIB);
	CHECK_EQ(cuGreenCtxDestroy(green), CUDA_SUCCESS);
	CHECK_EQ(cuGreenCtxDestroy(green), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQ(held(), cost); /* the primary context keeps it */
	CHECK_EQ(cuGreenCtxCreate(&green, share(128), 0, 1), CUDA_SUCCESS);
	CHECK_EQ(held(), cost);
	CHECK_EQ(cuGreenCtxCreate(&other, share(8), 0, 1), CUDA_SUCCESS);
	CHECK_EQ(held(), cost + 4 * MIB);
	CHECK_EQ(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_EQ(selftest_used(0), 3 * MIB);
	CHECK_EQ(cuGreenCtxDestroy(green), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	selftest_context();
	CHECK_EQ(held(), 0);
}

/* What is made in it outlives it. */
static void test_memory(void)
{
	static const char ptx[] = ".version 8.0\n.target sm_90\n.visible .entry nothing() { ret; }";
	CUcontext primary, context, whose;
	CUdeviceptr p;
	CUstream stream;
	CUgreenCtx green;
	CUmodule module;
	CUfunction function;
	uint64_t cost;

	CHECK_EQ(cuCtxGetCurrent(&primary), CUDA_SUCCESS);
	CHECK_EQ(cuGreenCtxCreate(&green, share(16), 0, 1), CUDA_SUCCESS);
	cost = held();
	CHECK_EQ(cuCtxFromGreenCtx(&context, green), CUDA_SUCCESS);
	CHECK(context != primary);
	CHECK_EQ(cuCtxDestroy_v2(context), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQ(cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&p, 64 * MIB), CUDA_SUCCESS);
	CHECK_EQ(cuPointerGetAttribute(&whose, CU_POINTER_ATTRIBUTE_CONTEXT, p), CUDA_SUCCESS);
	CHECK(whose == primary);
	CHECK_EQ(cuModuleLoadData(&module, ptx), CUDA_SUCCESS);
	CHECK_EQ(cuModuleGetFunction(&function, module, "nothing"), CUDA_SUCCESS);
	CHECK_EQ(cuGreenCtxStreamCreate(&stream, green, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuGreenCtxStreamCreate(&stream, green, 1, 0), CUDA_SUCCESS);
	CHECK_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), CUDA_SUCCESS);
	CHECK_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
	CHECK_EQ(cuCtxPopCurrent_v2(NULL), CUDA_SUCCESS);
	CHECK_EQ(cuGreenCtxDestroy(green), CUDA_SUCCESS);
	CHECK_EQ(cuCtxPushCurrent_v2(context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CHECK_EQ(held(), cost + 64 * MIB);
	CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
	CHECK_EQ(cuModuleUnload(module), CUDA_SUCCESS);
	CHECK_EQ(held(), cost);
}

int main(void)
{
	selftest_begin("1x8G");
	CHECK_EQ(cuInit(0), CUDA_SUCCESS);
	test_refused();
	selftest_context();
	start = selftest_used(0);
	test_cost();
	test_memory();
	return 0;
}
