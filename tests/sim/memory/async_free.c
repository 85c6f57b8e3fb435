/* Blocks of cuMemAlloc that are freed in stream order: the charge goes when their memory does. */
#include "stream_api.h"

#include <pthread.h>

static CUstream stream, other;

static void start(const char *limit)
{
	stream = stream_start(limit);
	CHECK_OK(cuStreamCreate(&other, NON_BLOCKING));
	assert_data(0);
}

TEST(with_its_stream)
{
	CUdeviceptr big, small;
	CUevent event;

	start("2g");
	CHECK_OK(cuEventCreate(&event, 0));
	big = take(100 * MIB);
	small = take(KIB);
	give_async(big, stream);
	CHECK_OK(cuMemFreeAsync_ptsz(small, other));
	assert_data(102 * MIB);
	CHECK_EQUAL(cuMemFreeAsync(big, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemFreeAsync_ptsz(big, other), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemFree_v2(big), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuStreamSynchronize_ptsz(other));
	assert_data(100 * MIB);
	synchronise(other);
	assert_data(100 * MIB);
	refused(1450 * MIB);
	synchronise(stream);
	assert_data(0);
	give_async(take(100 * MIB), stream); /* an event does not say whose it is */
	CHECK_OK(cuEventRecord(event, stream));
	CHECK_OK(cuEventSynchronize(event));
	assert_covered();
	CHECK_OK(cuCtxSynchronize());
	assert_data(0);
}

TEST(with_its_context)
{
	CUcontext first, second;
	CUstream inside_it;

	start("4g");
	CHECK_OK(cuCtxGetCurrent(&first));
	give_async(take(100 * MIB), stream);
	CHECK_OK(cuCtxCreate_v2(&second, 0, 0));
	CHECK_OK(cuStreamCreate(&inside_it, NON_BLOCKING));
	for (unsigned i = 0; i < 10; i++)
		give_async(take(50 * MIB), inside_it);
	CHECK_EQUAL(ledger_own(0).data, 600 * MIB);
	CHECK_OK(cuCtxSynchronize());
	CHECK_EQUAL(ledger_own(0).data, 100 * MIB);
	give_async(take(50 * MIB), inside_it);
	take(30 * MIB);
	CHECK_OK(cuCtxSynchronize_v2(first));
	CHECK_EQUAL(ledger_own(0).data, 80 * MIB);
	CHECK_OK(cuCtxDestroy_v2(second));
	assert_data(0);
	CHECK_OK(cuCtxSetCurrent(first));
	give_async(take(50 * MIB), stream);
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	CHECK_EQUAL(ledger_own(0).data, 0);
	CHECK_EQUAL(outside_of(0, getpid()), 0);
}

/* A block of one context is freed in a busy stream of another. Synchronising its own context does
 * not free it. The stream's does. */
TEST(in_a_stream_of_another_context)
{
	CUcontext first, second;
	CUfunction spin;
	CUdeviceptr block;
	CUstream streams[2] = {NULL};

	for (unsigned i = 0; i < 2; i++) { /* a default stream, and one that was made */
		if (i == 0) {
			start("4g");
			CHECK_OK(cuCtxGetCurrent(&first));
			CHECK_OK(cuCtxCreate_v2(&second, 0, 0));
			CHECK_OK(cuStreamCreate(&streams[1], NON_BLOCKING));
			spin = spin_load();
		}
		CHECK_OK(cuCtxSetCurrent(first));
		block = take(100 * MIB);
		CHECK_OK(cuCtxSetCurrent(second));
		busy(spin, 500 * MS, streams[i]);
		give_async(block, streams[i]);
		CHECK_OK(cuCtxSetCurrent(first));
		CHECK_OK(cuStreamSynchronize(NULL));
		CHECK_OK(cuCtxSynchronize());
		assert_covered();
		CHECK_OK(cuCtxSetCurrent(second));
		CHECK_OK(cuCtxSynchronize());
		CHECK_EQUAL(ledger_own(0).data, 0);
	}
}

/* The stream is destroyed while it is busy, and another stream gets its handle. */
TEST(in_a_destroyed_stream)
{
	CUfunction spin;

	start("2g");
	spin = spin_load();
	for (unsigned i = 0; i < 3; i++) {
		busy(spin, 300 * MS, other);
		give_async(take(100 * MIB), other);
		CHECK_OK(cuStreamDestroy_v2(other));
		CHECK_OK(cuStreamCreate(&other, NON_BLOCKING));
		synchronise(other);
		assert_covered();
		CHECK_OK(cuCtxSynchronize());
		assert_data(0);
	}
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
	CHECK_OK(cuMemAllocManaged(&address, 200 * MIB, CU_MEM_ATTACH_GLOBAL));
	CHECK_EQUAL(cuMemFreeAsync(address, stream),
		    CUDA_ERROR_NOT_SUPPORTED); /* the driver's word */
	synchronise(stream);
	CHECK_EQUAL(ledger_own(0).data, 256 * MIB);
	give(address);
	assert_data(0);
}

/* -- default streams -- */

static void *synchronise_own(void *context)
{
	CHECK_OK(cuCtxSetCurrent(context));
	CHECK_OK(cuStreamSynchronize_ptsz(NULL));
	CHECK_OK(cuStreamSynchronize(PER_THREAD));
	assert_covered();
	return NULL;
}

/* NULL is one stream in the one function and another in the other, and another in each context. */
TEST(default_streams)
{
	CUcontext first, second;
	pthread_t thread;

	start("4g");
	CHECK_OK(cuCtxGetCurrent(&first));
	CHECK_OK(cuMemFreeAsync_ptsz(take(10 * MIB), NULL));
	CHECK_OK(cuStreamSynchronize(NULL));
	assert_covered();
	CHECK(pthread_create(&thread, NULL, synchronise_own, first) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK_OK(cuStreamSynchronize(PER_THREAD));
	assert_data(0);
	CHECK_OK(cuMemFreeAsync(take(10 * MIB), NULL));
	CHECK_OK(cuStreamSynchronize_ptsz(NULL));
	assert_covered();
	CHECK_OK(cuCtxCreate_v2(&second, 0, 0));
	CHECK_OK(cuStreamSynchronize(NULL));
	CHECK_EQUAL(outside_of(0, getpid()), 2 * CONTEXT + 10 * MIB);
	assert_covered();
	CHECK_OK(cuCtxDestroy_v2(second));
	CHECK_OK(cuCtxSetCurrent(first));
	CHECK_OK(cuStreamSynchronize((CUstream)1));
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
	CHECK_EQUAL(cuMemFreeAsync(a, stream), CUDA_ERROR_UNKNOWN);
	CHECK_EQUAL(cuMemFreeAsync_ptsz(b, stream), 700);
	assert_data(20 * MIB);
	give_async(a, stream);
	CHECK_OK(cuMemFreeAsync_ptsz(b, stream));
	CHECK_EQUAL(cuStreamSynchronize(stream), CUDA_ERROR_UNKNOWN);
	CHECK_EQUAL(cuStreamSynchronize_ptsz(stream), CUDA_ERROR_UNKNOWN);
	assert_data(20 * MIB);
	synchronise(stream);
	assert_data(0);
	CHECK_EQUAL(cuMemFreeAsync(0, stream), CUDA_ERROR_INVALID_VALUE);
}
