/* Blocks of cuMemAlloc that are freed in stream order: the charge goes when their memory does. */
#include "stream_api.h"

#include <pthread.h>

static CUstream stream, other;

static void start(const char *limit)
{
	stream = stream_start(limit);
	CHECK_CUDA(cuStreamCreate(&other, NON_BLOCKING), CUDA_SUCCESS);
	assert_data(0);
}

TEST(with_its_stream)
{
	CUdeviceptr big, small;
	CUevent event;

	start("2g");
	CHECK_CUDA(cuEventCreate(&event, 0), CUDA_SUCCESS);
	big = take(100 * MIB);
	small = take(KIB);
	give_async(big, stream);
	CHECK_CUDA(cuMemFreeAsync_ptsz(small, other), CUDA_SUCCESS);
	assert_data(102 * MIB);
	CHECK_CUDA(cuMemFreeAsync(big, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMemFreeAsync_ptsz(big, other), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMemFree_v2(big), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuStreamSynchronize_ptsz(other), CUDA_SUCCESS);
	assert_data(100 * MIB);
	synchronise(other);
	assert_data(100 * MIB);
	refused(1450 * MIB);
	synchronise(stream);
	assert_data(0);
	give_async(take(100 * MIB), stream); /* an event does not say whose it is */
	CHECK_CUDA(cuEventRecord(event, stream), CUDA_SUCCESS);
	CHECK_CUDA(cuEventSynchronize(event), CUDA_SUCCESS);
	assert_covered();
	CHECK_CUDA(cuCtxSynchronize(), CUDA_SUCCESS);
	assert_data(0);
}

TEST(with_its_context)
{
	CUcontext first, second;
	CUstream inside_it;

	start("4g");
	CHECK_CUDA(cuCtxGetCurrent(&first), CUDA_SUCCESS);
	give_async(take(100 * MIB), stream);
	CHECK_CUDA(cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
	CHECK_CUDA(cuStreamCreate(&inside_it, NON_BLOCKING), CUDA_SUCCESS);
	for (unsigned i = 0; i < 10; i++)
		give_async(take(50 * MIB), inside_it);
	CHECK_EQUAL(ledger_own(0).data, 600 * MIB);
	CHECK_CUDA(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).data, 100 * MIB);
	give_async(take(50 * MIB), inside_it);
	take(30 * MIB);
	CHECK_CUDA(cuCtxSynchronize_v2(first), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).data, 80 * MIB);
	CHECK_CUDA(cuCtxDestroy_v2(second), CUDA_SUCCESS);
	assert_data(0);
	CHECK_CUDA(cuCtxSetCurrent(first), CUDA_SUCCESS);
	give_async(take(50 * MIB), stream);
	CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).data, 0);
	CHECK_EQUAL(outside_of(0, getpid()), 0);
}

/* More at once than are kept in mind: the rest is compared with NVML, and charged until then. */
TEST(very_many)
{
	start("4g");
	for (unsigned i = 0; i < 300; i++) {
		give_async(take(4 * MIB), stream);
		assert_covered();
	}
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT + 1200 * MIB);
	refused(3000 * MIB);
	synchronise(stream);
	assert_covered();
	sleep_ms(1100);
	give(take(3400 * MIB));
	assert_data(0);
	give_async(take(4 * MIB), stream); /* and there is room to keep them in mind again */
	synchronise(stream);
	assert_data(0);
}

TEST(managed_block)
{
	CUdeviceptr address;

	start("2g");
	CHECK_CUDA(cuMemAllocManaged(&address, 200 * MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_CUDA(cuMemFreeAsync(address, stream),
		   CUDA_ERROR_NOT_SUPPORTED); /* the driver's word */
	synchronise(stream);
	CHECK_EQUAL(ledger_own(0).data, 256 * MIB);
	give(address);
	assert_data(0);
}

/* -- default streams -- */

static void *synchronise_own(void *context)
{
	CHECK_CUDA(cuCtxSetCurrent(context), CUDA_SUCCESS);
	CHECK_CUDA(cuStreamSynchronize_ptsz(NULL), CUDA_SUCCESS);
	CHECK_CUDA(cuStreamSynchronize(PER_THREAD), CUDA_SUCCESS);
	assert_covered();
	return NULL;
}

/* NULL is one stream in the one function and another in the other, and another in each context. */
TEST(default_streams)
{
	CUcontext first, second;
	pthread_t thread;

	start("4g");
	CHECK_CUDA(cuCtxGetCurrent(&first), CUDA_SUCCESS);
	CHECK_CUDA(cuMemFreeAsync_ptsz(take(10 * MIB), NULL), CUDA_SUCCESS);
	CHECK_CUDA(cuStreamSynchronize(NULL), CUDA_SUCCESS);
	assert_covered();
	CHECK(pthread_create(&thread, NULL, synchronise_own, first) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK_CUDA(cuStreamSynchronize(PER_THREAD), CUDA_SUCCESS);
	assert_data(0);
	CHECK_CUDA(cuMemFreeAsync(take(10 * MIB), NULL), CUDA_SUCCESS);
	CHECK_CUDA(cuStreamSynchronize_ptsz(NULL), CUDA_SUCCESS);
	assert_covered();
	CHECK_CUDA(cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
	CHECK_CUDA(cuStreamSynchronize(NULL), CUDA_SUCCESS);
	CHECK_EQUAL(outside_of(0, getpid()), 2 * CONTEXT + 10 * MIB);
	assert_covered();
	CHECK_CUDA(cuCtxDestroy_v2(second), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(first), CUDA_SUCCESS);
	CHECK_CUDA(cuStreamSynchronize((CUstream)1), CUDA_SUCCESS);
	assert_data(0);
}

/* -- faults -- */

TEST(refused_frees)
{
	CUdeviceptr a, b;

	env_set("VGPU_SIM_FAULTS", "cuMemFreeAsync@1=999,cuMemFreeAsync_ptsz@1=700,"
				   "cuStreamSynchronize@1=999,cuStreamSynchronize_ptsz@1=999");
	start("2g");
	a = take(10 * MIB);
	b = take(10 * MIB);
	CHECK_CUDA(cuMemFreeAsync(a, stream), CUDA_ERROR_UNKNOWN);
	CHECK_CUDA(cuMemFreeAsync_ptsz(b, stream), 700);
	assert_data(20 * MIB);
	give_async(a, stream);
	CHECK_CUDA(cuMemFreeAsync_ptsz(b, stream), CUDA_SUCCESS);
	CHECK_CUDA(cuStreamSynchronize(stream), CUDA_ERROR_UNKNOWN);
	CHECK_CUDA(cuStreamSynchronize_ptsz(stream), CUDA_ERROR_UNKNOWN);
	assert_data(20 * MIB);
	synchronise(stream);
	assert_data(0);
	CHECK_CUDA(cuMemFreeAsync(0, stream), CUDA_ERROR_INVALID_VALUE);
}
