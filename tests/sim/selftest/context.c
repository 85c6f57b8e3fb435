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

	CHECK_OK(cuCtxGetCurrent(&context));
	return context;
}

static void state_is(CUdevice device, int active)
{
	unsigned flags;
	int now;

	CHECK_OK(cuDevicePrimaryCtxGetState(device, &flags, &now));
	CHECK_EQUAL(now, active);
}

static void test_primary(void)
{
	CUcontext first, second, other;
	CUdeviceptr p;

	state_is(0, 0);
	CHECK_EQUAL(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_OK(cuDevicePrimaryCtxRetain(&first, 0));
	CHECK_OK(cuDevicePrimaryCtxRetain(&second, 0));
	CHECK(first == second);
	CHECK(!current());
	state_is(0, 1);
	state_is(1, 0);
	CHECK_EQUAL(selftest_used(0), CONTEXT + FIRST);
	CHECK_OK(cuCtxSetCurrent(first));
	CHECK_OK(cuMemAlloc_v2(&p, 5 * MIB));
	CHECK_OK(cuDevicePrimaryCtxRelease_v2(0));
	CHECK_EQUAL(selftest_used(0), CONTEXT + FIRST + 6 * MIB);
	CHECK_OK(cuDevicePrimaryCtxRelease_v2(0));
	CHECK_EQUAL(selftest_used(0), 3 * MIB);
	state_is(0, 0);
	CHECK(!current());
	CHECK_EQUAL(cuMemFree_v2(p), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQUAL(cuCtxSetCurrent(first), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CHECK_OK(cuDevicePrimaryCtxRetain(&other, 0));
	CHECK(other == first);
	CHECK_EQUAL(selftest_used(0), CONTEXT + FIRST);
	CHECK_OK(cuCtxSetCurrent(other));
	CHECK_EQUAL(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuCtxDestroy_v2(other), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	state_is(0, 0);
	CHECK_EQUAL(selftest_used(0), 3 * MIB);
	CHECK_OK(cuDevicePrimaryCtxRelease_v2(0)); /* a reset leaves what was retained */
	CHECK_EQUAL(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
}

static void test_stack(void)
{
	CUcontext a, b, popped;
	CUdevice device;
	CUdeviceptr p;

	CHECK_OK(cuCtxCreate_v2(&a, 0, 1));
	CHECK_OK(cuCtxCreate_v4(&b, NULL, 0, 0));
	CHECK(current() == b);
	CHECK_OK(cuCtxPopCurrent_v2(&popped));
	CHECK(popped == b && current() == a);
	CHECK_OK(cuCtxGetDevice(&device));
	CHECK_EQUAL(device, 1);
	CHECK_OK(cuCtxPushCurrent_v2(b));
	CHECK_OK(cuCtxPushCurrent_v2(a));
	CHECK_OK(cuMemAlloc_v2(&p, MIB));
	CHECK_EQUAL(selftest_used(1), CONTEXT + FIRST + 2 * MIB);
	CHECK_OK(cuCtxDestroy_v2(a));
	CHECK(current() == b);
	CHECK_EQUAL(selftest_used(1), 3 * MIB);
	CHECK_EQUAL(cuCtxDestroy_v2(a), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CHECK_EQUAL(cuCtxPushCurrent_v2(a), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CHECK_EQUAL(cuCtxPushCurrent_v2((CUcontext)&p), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_OK(cuCtxPopCurrent_v2(NULL));
	CHECK_EQUAL(cuCtxPopCurrent_v2(NULL), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_OK(cuCtxDestroy_v2(b));
	CHECK_OK(cuCtxSetCurrent(NULL));
	CHECK_EQUAL(selftest_used(0), 3 * MIB);
}

static pthread_barrier_t barrier;

static void *other_thread(void *context)
{
	CUdeviceptr p;

	CHECK(!current());
	CHECK_OK(cuCtxSetCurrent(context));
	CHECK_OK(cuMemAlloc_v2(&p, 1));
	pthread_barrier_wait(&barrier); /* now it is destroyed over there */
	pthread_barrier_wait(&barrier);
	CHECK_EQUAL(cuMemAlloc_v2(&p, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CHECK(current() == context);
	return NULL;
}

static void test_threads(void)
{
	CUcontext context;
	pthread_t thread;

	CHECK_OK(cuCtxCreate_v2(&context, 0, 0));
	pthread_barrier_init(&barrier, NULL, 2);
	CHECK(!pthread_create(&thread, NULL, other_thread, context));
	pthread_barrier_wait(&barrier);
	CHECK_OK(cuCtxDestroy_v2(context));
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	CHECK_EQUAL(selftest_used(0), 3 * MIB);
}

static void test_attach(void)
{
	CUcontext context, same;

	CHECK_EQUAL(cuCtxAttach(&same, 0), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_OK(cuCtxCreate(&context, 0, 0));
	CHECK_OK(cuCtxAttach(&same, 0));
	CHECK(same == context);
	CHECK_OK(cuCtxDetach(context));
	CHECK(current() == context);
	CHECK_OK(cuCtxDetach(context));
	CHECK(!current());
	CHECK_EQUAL(cuCtxDetach(context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CHECK_EQUAL(selftest_used(0), 3 * MIB);
}

static void test_too_many(void)
{
	CUcontext first, context = NULL;
	CUdeviceptr p;

	CHECK_OK(cuCtxCreate_v2(&first, 0, 0));
	CHECK_OK(cuMemAlloc_v2(&p, 3 * GIB));
	CHECK_EQUAL(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(!context);
	CHECK(current() == first);
	CHECK_EQUAL(cuCtxCreate_v2(&context, 0, 2), CUDA_ERROR_INVALID_DEVICE);
	CHECK_OK(cuCtxDestroy_v2(first));
}

static void test_queries(void)
{
	CUcontext context;
	unsigned version, flags;
	unsigned long long id, other;
	size_t value;

	CHECK_OK(cuCtxCreate_v3(&context, NULL, 0, 8, 0));
	CHECK_OK(cuCtxGetFlags(&flags));
	CHECK_EQUAL(flags, 8);
	CHECK_OK(cuCtxGetApiVersion(context, &version));
	CHECK_EQUAL(version, 3020);
	CHECK_OK(cuCtxGetId(context, &id));
	CHECK_OK(cuCtxGetId(NULL, &other));
	CHECK(id == other);
	CHECK_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
	CHECK_OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
	CHECK_EQUAL(value, 4096);
	CHECK_OK(cuCtxDestroy_v2(context));
}

/* As measured: the stacks of all threads that the GPU can have, at once, and nothing else. */
static void test_stack_limit(void)
{
	CUcontext context;
	CUdeviceptr p;
	size_t value;

	CHECK_OK(cuCtxCreate_v2(&context, 0, 0));
	CHECK_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 8192));
	CHECK_EQUAL(selftest_process_bytes(0, getpid()), CONTEXT + 1848 * MIB);
	CHECK_EQUAL(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 65536), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
	CHECK_EQUAL(value, 8192);
	CHECK_EQUAL(cuMemAlloc_v2(&p, 2 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, GIB));
	CHECK_OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, GIB));
	CHECK_EQUAL(selftest_process_bytes(0, getpid()), CONTEXT + 1848 * MIB);
	CHECK_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 512));
	CHECK_EQUAL(selftest_process_bytes(0, getpid()), CONTEXT);
	CHECK_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
	CHECK_EQUAL(selftest_process_bytes(0, getpid()), CONTEXT + 264 * MIB);
	CHECK_OK(cuCtxDestroy_v2(context));
	CHECK_EQUAL(selftest_used(0), 3 * MIB);
}

int main(void)
{
	CUcontext context;

	selftest_begin("2x4G");
	CHECK_EQUAL(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_EQUAL(cuInit(1), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuInit(0));
	CHECK_OK(cuInit(0));
	CHECK_EQUAL(selftest_used(0), 0);
	test_primary();
	test_stack();
	test_threads();
	test_attach();
	test_too_many();
	test_queries();
	test_stack_limit();
	return 0;
}
