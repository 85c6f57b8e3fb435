/* Under a compute quota fills and copies within the device are charged what they take. */
#include "copy.h"

#define QUOTA_PCT   20
#define MEASURED_MS 1000 /* of which what the bucket holds is a small part */
#define MB_S        1000 /* so fast is the GPU: more than a millisecond for a MiB */
#define WORK_NS     (MIB * 1000 / MB_S)

static const struct vgpu_region_bucket *bucket;

static void start(void)
{
	env_set("CUDA_DEVICE_SM_LIMIT", "20");
	env_set("GPU_CORE_UTILIZATION_POLICY", "force");
	env_set("VGPU_SIM_COPY_MB_S", "1000");
	copies_start("4g");
	bucket = &ledger()->own.device[ledger_index(0)].bucket;
}

static int64_t charged(void)
{
	return PEEK(bucket->charged) + PEEK(bucket->corrected);
}

/* -- held to the quota -- */

static DRIVER_CALL(fill_async, cuMemsetD8Async(here, 1, MIB, stream));
static DRIVER_CALL(fill_default, cuMemsetD32_v2(here, 1, MIB / 4));
static DRIVER_CALL(copy_async, cuMemcpyDtoDAsync_v2(here, there, MIB, stream));
static DRIVER_CALL(copy_unified, cuMemcpyAsync_ptsz(here, there, MIB, stream));

static CUresult copy_rows(void)
{
	const CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				     .srcDevice = there,
				     .srcPitch = 1024,
				     .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				     .dstDevice = here,
				     .dstPitch = 1024,
				     .WidthInBytes = 1024,
				     .Height = 1024};

	return cuMemcpy2DAsync_v2(&plane, stream);
}

/* How much of the time the GPU works on it, in percent, when it is given as much as goes. */
static unsigned share_of(CUresult (*work)(void), unsigned ms)
{
	uint64_t began_ms = now_ms(), done = 0;

	while (now_ms() - began_ms < ms) {
		CHECK_OK(work());
		done++;
	}
	CHECK_OK(cuCtxSynchronize());
	return (unsigned)(done * WORK_NS / 10000 / (now_ms() - began_ms));
}

static const struct work {
	const char *name;
	CUresult (*make)(void);
} works[] = {
	{"fills_async", fill_async},  {"fills_default", fill_default},
	{"copies_async", copy_async}, {"copies_unified", copy_unified},
	{"copies_rows", copy_rows},
};

/* Who gets no processor loses what it does not use: that is tried again. */
static void keeps_to_quota(const struct work *work)
{
	unsigned share = 0;

	start();
	share_of(work->make, 100); /* learns */
	for (unsigned tries = 0; tries < 5 && (share < 15 || share > 26); tries++)
		share = share_of(work->make, MEASURED_MS);
	CHECK_AT_MOST(15, share);
	CHECK_AT_MOST(share, 26);
}

TEST_TABLE(works, keeps_to_quota);

/* Sizes that come and go: a cost that is learned of one is taken for others. */
TEST(sizes)
{
	uint64_t began_ms, bytes = 0, ms;
	unsigned share = 0;

	start();
	for (unsigned tries = 0; tries < 5 && (share < 15 || share > 26); tries++) {
		began_ms = now_ms();
		bytes = 0;
		for (uint64_t i = 0; (ms = now_ms() - began_ms) < MEASURED_MS; i++) {
			uint64_t size = 96 * KIB + i * 7919 % 900 * KIB;

			CHECK_OK(cuMemsetD8Async(here, 1, size, stream));
			bytes += size;
		}
		CHECK_OK(cuStreamSynchronize(stream));
		ms = now_ms() - began_ms;
		share = (unsigned)(bytes * 1000 / MB_S / 10000 / ms);
	}
	CHECK_AT_MOST(15, share);
	CHECK_AT_MOST(share, 26);
}

/* -- not charged -- */

static CUresult fill_in(void *function, CUstream where)
{
	(void)function;
	return cuMemsetD8Async(here, 1, MIB, where);
}

/* While others wait, for a second, as the slice is in debt. */
TEST(host_copies)
{
	static const struct launcher fill = {.name = "fill", .call = fill_in};
	struct attempt attempt;
	CUstream other;
	int64_t before;

	start();
	CHECK_OK(cuStreamCreate(&other, NON_BLOCKING));
	busy(spin, 250 * MS, stream);
	CHECK_OK(cuStreamSynchronize(stream));
	attempt_begin(&attempt, &fill, NULL, stream);
	sleep_ms(STAY_MS);
	before = charged();
	CHECK_AT_MOST(200 * MS, before);
	for (unsigned i = 0; i < 100; i++) {
		CHECK_OK(cuMemcpyAsync(here, (uintptr_t)page_locked, MIB / 8, other));
		copies_with_host(page_locked, MIB / 8);
	}
	CHECK_EQUAL(charged(), before);
	attempt_waits(&attempt);
	attempt_ends(&attempt, CUDA_SUCCESS);
}

#define NODES 20

/* Captured work costs nothing; its graph does, when it is launched. */
TEST(captures)
{
	CUgraph fills;
	CUgraphExec all;
	int64_t before;

	start();
	CHECK_OK(fill_async());
	CHECK_OK(cuStreamSynchronize(stream));
	sleep_ms(100);
	CHECK_OK(fill_async()); /* settles what was measured */
	before = charged();
	CHECK_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (unsigned i = 0; i < NODES; i++)
		CHECK_OK(i % 2 ? fill_async() : copy_async());
	CHECK_OK(cuStreamEndCapture(stream, &fills));
	CHECK_EQUAL(charged(), before);
	CHECK_OK(cuGraphInstantiateWithFlags(&all, fills, 0));
	for (unsigned i = 0; i < 5; i++) {
		CHECK_OK(cuGraphLaunch(all, stream));
		CHECK_OK(cuStreamSynchronize(stream));
	}
	CHECK_AT_MOST(3 * NODES * WORK_NS, charged() - before);
}
