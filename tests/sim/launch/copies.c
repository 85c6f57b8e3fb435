/*
 * Fills and copies within the device pass the gate, by each way to them; what has to do with the
 * host, or with another device, goes by it.
 */
#include "copy.h"

#include <dlfcn.h>

TEST(blocked)
{
	copies_start("4g");
	held(copiers, COPIERS, block, unblock);
	CHECK_EQUAL(PEEK(words->recent_kernel), 2);
}

TEST(suspended)
{
	copies_start("4g");
	held(copiers, COPIERS, suspend_self, resume_self);
}

/* -- arguments -- */

static unsigned marks_in(const unsigned char *bytes, unsigned count)
{
	unsigned marks = 0;

	while (count--)
		marks += bytes[count] == COPY_MARK;
	return marks;
}

/* Every mark is where it should be: in a row, or in rows of 32 bytes. */
static bool is_copied(const unsigned char *bytes)
{
	bool line = marks_in(bytes, COPY_BYTES) == COPY_BYTES;
	unsigned rows = 0;

	for (unsigned row = 0; row < 8; row++)
		rows += marks_in(bytes + (size_t)row * 64, 32);
	return marks_in(bytes, 1024) == COPY_BYTES && (line || rows == COPY_BYTES);
}

/* They arrive, by whatever way. */
TEST(arguments_arrive)
{
	unsigned char bytes[1024];

	copies_start("4g");
	for (int32_t recent = 1; recent <= 2; recent++) /* round, and straight */
		for (size_t i = 0; i < COPIERS; i++) {
			const struct launcher *copier = &copiers[i];

			memset(bytes, 0, sizeof(bytes));
			CHECK_OK(cuMemcpyHtoD_v2(here, bytes, sizeof(bytes)));
			POKE(words->recent_kernel, recent);
			CHECK_OK(copier->call(copier->linked, stream));
			CHECK_OK(cuCtxSynchronize());
			CHECK_OK(cuMemcpyDtoH_v2(bytes, here, sizeof(bytes)));
			if (!copies_arrays(copier) && !is_copied(bytes))
				check_failed(__FILE__, __LINE__, copier->name);
		}
}

/* The driver hears what it would have heard, and says what it says. */
TEST(refused_by_driver)
{
	const CUDA_MEMCPY2D nowhere = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				       .WidthInBytes = 1,
				       .Height = 1};

	copies_start("4g");
	for (unsigned round = 0; round < 100; round++) {
		CHECK_EQUAL(cuMemsetD8_v2(4096, 0, 1), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(cuMemsetD32_v2(here + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(cuMemsetD8_v2(here, 0, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(cuMemsetD2D32_v2(here, SIZE_MAX, 0, SIZE_MAX, SIZE_MAX),
			    CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(cuMemcpyDtoDAsync_v2(here, 4096, 1, stream), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(cuMemcpy2D_v2(&nowhere), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(cuMemcpy2D_v2(NULL), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(cuMemcpy3DAsync_v2(NULL, stream), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(cuMemcpyDtoA_v2(NULL, 0, here, 1), CUDA_ERROR_INVALID_VALUE);
		POKE(words->recent_kernel, 1); /* the way round */
	}
}

/* -- what is not held -- */

/* By a descriptor that leaves it to addresses, and by one that does not. */
static void copy_rows_with(const void *host)
{
	CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
			       .srcDevice = (uintptr_t)host,
			       .srcPitch = 64,
			       .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
			       .dstDevice = here,
			       .dstPitch = 64,
			       .WidthInBytes = 32,
			       .Height = 4};
	CUDA_MEMCPY3D solid = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
			       .srcArray = array_there,
			       .dstMemoryType = CU_MEMORYTYPE_HOST,
			       .dstHost = page_locked,
			       .dstPitch = 64,
			       .dstHeight = 2,
			       .WidthInBytes = 32,
			       .Height = 2,
			       .Depth = 2};

	CHECK_OK(cuMemcpy2D_v2(&plane));
	CHECK_OK(cuMemcpy2DAsync_v2_ptsz(&plane, stream));
	plane.srcMemoryType = CU_MEMORYTYPE_HOST;
	plane.srcHost = host;
	plane.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	CHECK_OK(cuMemcpy2DUnaligned_v2(&plane));
	CHECK_OK(cuMemcpy3D_v2_ptds(&solid));
	CHECK_OK(cuMemcpy3DAsync_v2(&solid, stream));
}

static void copy_with(unsigned char *host)
{
	const CUdeviceptr address = (uintptr_t)host;

	CHECK_OK(cuMemcpy(here, address, 1024));
	CHECK_OK(cuMemcpy_ptds(address, here, 1024));
	CHECK_OK(cuMemcpyAsync(address, here, 1024, stream));
	CHECK_OK(cuMemcpyAsync_ptsz(here, address, 1024, stream));
	copy_rows_with(host);
}

/* Host memory of whatever kind, however often; and no work at all. */
TEST(host_goes)
{
	static unsigned char any[4096];
	struct attempt attempt;

	copies_start("4g");
	block();
	for (unsigned round = 0; round < 1000; round++) {
		copies_with_host(any, sizeof(any));
		copy_with(any);
		copy_with(page_locked);
	}
	CHECK_OK(cuMemsetD8_v2(here, 1, 0));
	CHECK_EQUAL(PEEK(words->recent_kernel), -1);
	attempt_stays(&attempt, &launchers[0]);
	unblock();
	attempt_ends(&attempt, CUDA_SUCCESS);
}

/* It is a copy engine's; the other device's own copies are held like any. */
static CUdeviceptr over_there;

static CUresult copy_within(void *function, CUstream where)
{
	(void)function;
	return cuMemcpyDtoDAsync_v2(over_there, over_there + 4096, 4096, where);
}

TEST(devices_go)
{
	static const struct launcher within = {.name = "within", .call = copy_within};
	CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
			       .WidthInBytes = 4096,
			       .Height = 1};
	struct attempt attempt;

	env_set("VGPU_SIM_GPUS", "2x80G");
	copies_start("4g");
	cuda_start(1);
	over_there = take(MIB);
	CHECK_OK(cuCtxSetCurrent(context));
	block();
	CHECK_OK(cuMemcpyDtoD_v2(here, over_there, 4096));
	CHECK_OK(cuMemcpyAsync(over_there, here, 4096, stream));
	plane.srcDevice = here;
	plane.dstDevice = over_there;
	CHECK_OK(cuMemcpy2DAsync_v2(&plane, stream));
	attempt_stays(&attempt, &within);
	unblock();
	attempt_ends(&attempt, CUDA_SUCCESS);
}

/* -- captures -- */

/* Nodes, of all that can be given a stream. */
TEST(captured)
{
	CUgraph graph_of_it;
	size_t nodes = 0, called = 0;

	copies_start("4g");
	block();
	CHECK_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (size_t i = 0; i < COPIERS; i++)
		if (!copiers[i].to_default) {
			CHECK_OK(copiers[i].call(copiers[i].linked, stream));
			called++;
		}
	CHECK_OK(cuStreamEndCapture(stream, &graph_of_it));
	CHECK_OK(cuGraphGetNodes(graph_of_it, NULL, &nodes));
	CHECK_EQUAL(nodes, called);
	CHECK_AT_MOST(20, called);
	CHECK_EQUAL(PEEK(words->recent_kernel), -1);
}

/* The default stream's work is refused by the driver while another's is captured. */
TEST(implicit)
{
	CUgraph none;
	CUstream blocking;

	copies_start("4g");
	CHECK_OK(cuStreamCreate(&blocking, 0));
	block();
	CHECK_OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK_EQUAL(cuMemsetD8_v2(here, 0, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	CHECK_EQUAL(cuMemcpyDtoD_v2(here, there, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	CHECK_EQUAL(cuStreamEndCapture(blocking, &none), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* Another stream's capture is no excuse, to a thread's own default stream either. */
TEST(per_thread_waits)
{
	static struct attempt attempts[COPIERS];
	CUstream blocking;
	CUgraph graph_of_it;

	copies_start("4g");
	CHECK_OK(cuStreamCreate(&blocking, 0));
	block();
	CHECK_OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	for (size_t i = 0; i < COPIERS; i++)
		if (copiers[i].per_thread)
			attempt_begin(&attempts[i], &copiers[i], copiers[i].linked, NULL);
	sleep_ms(STAY_MS);
	for (size_t i = 0; i < COPIERS; i++)
		if (copiers[i].per_thread)
			attempt_waits(&attempts[i]);
	CHECK_OK(cuStreamEndCapture(blocking, &graph_of_it));
	unblock();
	for (size_t i = 0; i < COPIERS; i++)
		if (copiers[i].per_thread)
			attempt_ends(&attempts[i], CUDA_SUCCESS);
}

/* -- no slice -- */

TEST(inert)
{
	Dl_info where;

	copies_start(NULL);
	for (unsigned round = 0; round < 200; round++)
		for (size_t i = 0; i < COPIERS; i++)
			CHECK_OK(copiers[i].call(copiers[i].linked, stream));
	for (size_t i = 0; i < COPIERS; i++) {
		CHECK(dladdr(ways[2](&copiers[i]), &where));
		CHECK(strstr(where.dli_fname, "libcuda"));
	}
}

/* Before cuInit. */
TEST(not_attached)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	for (size_t i = 0; i < 3; i++) {
		CHECK_EQUAL(cuMemsetD8_v2(4096, 0, 1), CUDA_ERROR_NOT_INITIALIZED);
		CHECK_EQUAL(cuMemcpyAsync(4096, 8192, 1, NULL), CUDA_ERROR_NOT_INITIALIZED);
	}
	copies_start("4g");
	CHECK_OK(cuMemsetD8_v2(here, 0, 1));
}
