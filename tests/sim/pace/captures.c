/* What is captured is not waited for, not measured and not charged; what is measured meanwhile ends
 * no capture. */
#include "pace.h"

static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
					    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
					    CU_STREAM_CAPTURE_MODE_RELAXED};

#define MODES 3

/* By every function that launches. */
static CUgraph capture_all(CUstreamCaptureMode mode)
{
	CUgraph captured = NULL;

	CHECK_OK(cuStreamBeginCapture_v2(stream, mode));
	for (size_t i = 0; i < LAUNCHERS; i++)
		if (!launchers[i].to_default)
			CHECK_OK(launchers[i].call(launchers[i].linked, stream));
	for (unsigned i = 0; i < 1000; i++)
		busy(spin, 100, stream);
	CHECK_OK(cuStreamEndCapture(stream, &captured));
	return captured;
}

/* As deep in debt as for 200 s; the graph's launch waits for that. */
TEST(in_debt)
{
	for (unsigned i = 0; i < MODES; i++) {
		struct vgpu_region_bucket before;
		struct attempt attempt;
		uint64_t began;

		if (i == 0)
			pace_start("50");
		CHECK_OK(launch());
		synchronise(stream);
		CHECK_OK(launch()); /* settles what was measured */
		into_debt(0);
		before = *bucket_of(0);
		began = now_ms();
		CHECK_OK(cuGraphInstantiateWithFlags(&graph, capture_all(modes[i]), 0));
		CHECK_AT_MOST(now_ms() - began, 50000);
		CHECK_EQUAL(PEEK(bucket_of(0)->charged), before.charged);
		CHECK_EQUAL(PEEK(bucket_of(0)->corrected), before.corrected);
		attempt_begin(&attempt, &launchers[LAUNCHERS - 1 - i % 2],
			      launchers[LAUNCHERS - 1 - i % 2].linked, stream);
		sleep_ms(STAY_MS);
		attempt_waits(&attempt);
		CHECK_EQUAL(PEEK(bucket_of(0)->charged), before.charged);
		out_of_debt(0);
		attempt_ends(&attempt, CUDA_SUCCESS);
		synchronise(stream);
	}
}

/* Without any debt: the sums are the same. */
TEST(not_charged)
{
	struct vgpu_region_bucket before;

	pace_start("50");
	for (unsigned i = 0; i < MODES; i++) {
		before = *bucket_of(0);
		capture_all(modes[i]);
		CHECK_EQUAL(PEEK(bucket_of(0)->charged), before.charged);
		CHECK_EQUAL(PEEK(bucket_of(0)->corrected), before.corrected);
	}
}

/* -- a thread captures, another is measured --------------------------------------------------- */

static bool enough;
static uint64_t captures_made;

static void *capture_on(void *arg)
{
	CUstreamCaptureMode mode = *(const CUstreamCaptureMode *)arg;
	CUstream own;

	CHECK_OK(cuCtxSetCurrent(context));
	CHECK_OK(cuStreamCreate(&own, NON_BLOCKING));
	while (!PEEK(enough)) {
		CUgraph captured = NULL;

		CHECK_OK(cuStreamBeginCapture_v2(own, mode));
		for (unsigned i = 0; i < 10; i++) {
			busy(spin, 1000, own);
			usleep(300);
		}
		CHECK_OK(cuStreamEndCapture(own, &captured));
		CHECK_OK(cuGraphDestroy(captured));
		__atomic_fetch_add(&captures_made, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

/* Kernels of many kinds, so that all is asked: events, streams, neighbours. */
TEST(beside)
{
	pace_start("50");
	for (unsigned i = 0; i < MODES; i++) {
		uint64_t until = now_ms() + 500, made = PEEK(captures_made);
		pthread_t thread;

		POKE(enough, false);
		CHECK(pthread_create(&thread, NULL, capture_on, (void *)&modes[i]) == 0);
		for (unsigned n = 1; now_ms() < until || PEEK(captures_made) < made + 5; n++) {
			busy(spin, n % 50 * 20000, stream);
			if (n % 20 == 0)
				usleep(5000);
		}
		POKE(enough, true);
		CHECK(pthread_join(thread, NULL) == 0);
	}
}

/* -- every way to begin one, and to end it ---------------------------------------------------- */

static CUgraph to_graph;

static CUresult begin_to_graph(CUstream on)
{
	return cuStreamBeginCaptureToGraph(on, to_graph, NULL, NULL, 0,
					   CU_STREAM_CAPTURE_MODE_RELAXED);
}

static CUresult begin_to_graph_ptsz(CUstream on)
{
	return cuStreamBeginCaptureToGraph_ptsz(on, to_graph, NULL, NULL, 0,
						CU_STREAM_CAPTURE_MODE_RELAXED);
}

static CUresult begin_v2(CUstream on)
{
	return cuStreamBeginCapture_v2(on, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static CUresult begin_v2_ptsz(CUstream on)
{
	return cuStreamBeginCapture_v2_ptsz(on, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

#define STARTS_ASK 3 /* how often the driver is asked for the capture that pace_start makes */

/* What fails to begin is none: nobody asks the driver, which would say that it does not know,
 * whether a stream is captured. */
TEST(failed)
{
	struct vgpu_region_bucket before;
	char faults[2048] = "";
	size_t length = 0;

	for (unsigned n = STARTS_ASK + 1; n < STARTS_ASK + 50; n++)
		length += (size_t)snprintf(faults + length, sizeof(faults) - length,
					   "cuStreamIsCapturing@%u=999,", n);
	faults[length - 1] = '\0';
	setenv("VGPU_SIM_FAULTS", faults, 1);
	pace_start("50");
	CHECK_OK(cuGraphCreate(&to_graph, 0));
	CHECK_EQUAL(begin_to_graph(stream), CUDA_ERROR_NOT_SUPPORTED); /* by the simulated driver */
	CHECK_EQUAL(begin_to_graph_ptsz(stream), CUDA_ERROR_NOT_SUPPORTED);
	CHECK(cuStreamBeginCapture(NULL) != CUDA_SUCCESS);
	before = *bucket_of(0);
	for (unsigned n = 0; n < 40; n++)
		busy(spin, 20000, stream);
	CHECK(PEEK(bucket_of(0)->charged) > before.charged);
}

/* Which may be tried where one goes on, or none. */
TEST(every_way)
{
	static CUresult (*const begins[])(CUstream) = {
		cuStreamBeginCapture, cuStreamBeginCapture_ptsz, begin_v2, begin_v2_ptsz};
	CUstream other;

	pace_start("50");
	CHECK_OK(cuStreamCreate(&other, NON_BLOCKING));
	for (unsigned i = 0; i < 8; i++) {
		struct vgpu_region_bucket before;
		CUgraph captured = NULL;

		CHECK_OK(begins[i % 4](stream));
		CHECK(begins[i % 4](stream) != CUDA_SUCCESS);
		CHECK(cuStreamEndCapture(other, &captured) != CUDA_SUCCESS);
		before = *bucket_of(0);
		for (unsigned n = 0; n < 100; n++)
			busy(spin, 20000, stream);
		CHECK_EQUAL(PEEK(bucket_of(0)->charged), before.charged);
		for (unsigned n = 0; n < 100; n++) /* which is measured without spoiling it */
			busy(spin, 20000, other);
		CHECK(PEEK(bucket_of(0)->charged) > before.charged);
		CHECK_OK(i % 2 ? cuStreamEndCapture(stream, &captured)
			       : cuStreamEndCapture_ptsz(stream, &captured));
		CHECK_OK(cuGraphDestroy(captured));
		for (unsigned n = 0; n < 100; n++)
			busy(spin, 20000, n % 2 ? stream : other);
	}
}
