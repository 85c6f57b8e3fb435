/*
 * Contexts: what they cost, whose stack they are on, and what becomes of all that was in one.
 */
#include "selftest.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

static CUcontext current(void)
{
	CUcontext context;

	CHECK_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
	return context;
}

static void state_is(CUdevice device, int active)
{
	unsigned flags;
	int now;

	CHECK_EQ(cuDevicePrimaryCtxGetState(device, &flags, &now), CUDA_SUCCESS);
	CHECK_EQ(now, active);
}

static void test_primary(void)
{
	CUcontext first, second, other;
	CUdeviceptr p;

	state_is(0, 0);
	CHECK_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQ(cuDevicePrimaryCtxRetain(&first, 0), CUDA_SUCCESS);
	CHECK_EQ(cuDevicePrimaryCtxRetain(&second, 0), CUDA_SUCCESS);
	CHECK(first == second);
	CHECK(!current());
	state_is(0, 1);
	state_is(1, 0);
	CHECK_EQ(selftest_used(0), CONTEXT + FIRST);
	CHECK_EQ(cuCtxSetCurrent(first), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&p, 5 * MIB), CUDA_SUCCESS);
	CHECK_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	CHECK_EQ(selftest_used(0), CONTEXT + FIRST + 6 * MIB);
	CHECK_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	CHECK_EQ(selftest_used(0), 3 * MIB);
	state_is(0, 0);
	CHECK(!current());
	CHECK_EQ(cuMemFree_v2(p), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQ(cuCtxSetCurrent(first), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CHECK_EQ(cuDevicePrimaryCtxRetain(&other, 0), CUDA_SUCCESS);
	CHECK(other == first);
	CHECK_EQ(selftest_used(0), CONTEXT + FIRST);
	CHECK_EQ(cuCtxSetCurrent(other), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuCtxDestroy_v2(other), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQ(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	state_is(0, 0);
	CHECK_EQ(selftest_used(0), 3 * MIB);
	CHECK_EQ(cuDevicePrimaryCtxRelease_v2(0),
		 CUDA_SUCCESS); /* a reset leaves what was retained */
	CHECK_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
}

static void test_stack(void)
{
	CUcontext a, b, popped;
	CUdevice device;
	CUdeviceptr p;

	CHECK_EQ(cuCtxCreate_v2(&a, 0, 1), CUDA_SUCCESS);
	CHECK_EQ(cuCtxCreate_v4(&b, NULL, 0, 0), CUDA_SUCCESS);
	CHECK(current() == b);
	CHECK_EQ(cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
	CHECK(popped == b && current() == a);
	CHECK_EQ(cuCtxGetDevice(&device), CUDA_SUCCESS);
	CHECK_EQ(device, 1);
	CHECK_EQ(cuCtxPushCurrent_v2(b), CUDA_SUCCESS);
	CHECK_EQ(cuCtxPushCurrent_v2(a), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&p, MIB), CUDA_SUCCESS);
	CHECK_EQ(selftest_used(1), CONTEXT + FIRST + 2 * MIB);
	CHECK_EQ(cuCtxDestroy_v2(a), CUDA_SUCCESS);
	CHECK(current() == b);
	CHECK_EQ(selftest_used(1), 3 * MIB);
	CHECK_EQ(cuCtxDestroy_v2(a), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CHECK_EQ(cuCtxPushCurrent_v2(a), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CHECK_EQ(cuCtxPushCurrent_v2((CUcontext)&p), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQ(cuCtxPopCurrent_v2(NULL), CUDA_SUCCESS);
	CHECK_EQ(cuCtxPopCurrent_v2(NULL), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQ(cuCtxDestroy_v2(b), CUDA_SUCCESS);
	CHECK_EQ(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
	CHECK_EQ(selftest_used(0), 3 * MIB);
}

static pthread_barrier_t barrier;

static void *other_thread(void *context)
{
	CUdeviceptr p;

	CHECK(!current());
	CHECK_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&p, 1), CUDA_SUCCESS);
	pthread_barrier_wait(&barrier); /* now it is destroyed over there */
	pthread_barrier_wait(&barrier);
	CHECK_EQ(cuMemAlloc_v2(&p, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CHECK(current() == context);
	return NULL;
}

static void test_threads(void)
{
	CUcontext context;
	pthread_t thread;

	CHECK_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
	pthread_barrier_init(&barrier, NULL, 2);
	CHECK(!pthread_create(&thread, NULL, other_thread, context));
	pthread_barrier_wait(&barrier);
	CHECK_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	CHECK_EQ(selftest_used(0), 3 * MIB);
}

static void test_attach(void)
{
	CUcontext context, same;

	CHECK_EQ(cuCtxAttach(&same, 0), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQ(cuCtxCreate(&context, 0, 0), CUDA_SUCCESS);
	CHECK_EQ(cuCtxAttach(&same, 0), CUDA_SUCCESS);
	CHECK(same == context);
	CHECK_EQ(cuCtxDetach(context), CUDA_SUCCESS);
	CHECK(current() == context);
	CHECK_EQ(cuCtxDetach(context), CUDA_SUCCESS);
	CHECK(!current());
	CHECK_EQ(cuCtxDetach(context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CHECK_EQ(selftest_used(0), 3 * MIB);
}

static void test_too_many(void)
{
	CUcontext first, context = NULL;
	CUdeviceptr p;

	CHECK_EQ(cuCtxCreate_v2(&first, 0, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&p, 3 * GIB), CUDA_SUCCESS);
	CHECK_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(!context);
	CHECK(current() == first);
	CHECK_EQ(cuCtxCreate_v2(&context, 0, 2), CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQ(cuCtxDestroy_v2(first), CUDA_SUCCESS);
}

static void test_queries(void)
{
	CUcontext context;
	unsigned version, flags;
	unsigned long long id, other;
	size_t value;

	CHECK_EQ(cuCtxCreate_v3(&context, NULL, 0, 8, 0), CUDA_SUCCESS);
	CHECK_EQ(cuCtxGetFlags(&flags), CUDA_SUCCESS);
	CHECK_EQ(flags, 8);
	CHECK_EQ(cuCtxGetApiVersion(context, &version), CUDA_SUCCESS);
	CHECK_EQ(version, 3020);
	CHECK_EQ(cuCtxGetId(context, &id), CUDA_SUCCESS);
	CHECK_EQ(cuCtxGetId(NULL, &other), CUDA_SUCCESS);
	CHECK(id == other);
	CHECK_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
	CHECK_EQ(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
	CHECK_EQ(value, 4096);
	CHECK_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
}

/* As measured: the stacks of all threads that the GPU can have, at once, and nothing else. */
static void test_stack_limit(void)
{
	CUcontext context;
	CUdeviceptr p;
	size_t value;

	CHECK_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
	CHECK_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 8192), CUDA_SUCCESS);
	CHECK_EQ(selftest_process_bytes(0, getpid()), CONTEXT + 1848 * MIB);
	CHECK_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 65536), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
	CHECK_EQ(value, 8192);
	CHECK_EQ(cuMemAlloc_v2(&p, 2 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, GIB), CUDA_SUCCESS);
	CHECK_EQ(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, GIB), CUDA_SUCCESS);
	CHECK_EQ(selftest_process_bytes(0, getpid()), CONTEXT + 1848 * MIB);
	CHECK_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 512), CUDA_SUCCESS);
	CHECK_EQ(selftest_process_bytes(0, getpid()), CONTEXT);
	CHECK_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048), CUDA_SUCCESS);
	CHECK_EQ(selftest_process_bytes(0, getpid()), CONTEXT + 264 * MIB);
	CHECK_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
	CHECK_EQ(selftest_used(0), 3 * MIB);
}

int main(void)
{
	CUcontext context;

	selftest_begin("2x4G");
	CHECK_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuInit(0), CUDA_SUCCESS);
	CHECK_EQ(cuInit(0), CUDA_SUCCESS);
	CHECK_EQ(selftest_used(0), 0);
	test_primary();
	test_stack();
	test_threads();
	test_attach();
	test_too_many();
	test_queries();
	test_stack_limit();
	return 0;
}
