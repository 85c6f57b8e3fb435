/* What is launched into a capture waits for nothing; the graph that comes of it does. */
#include "launch.h"

/* As long as the slice is blocked. */
static CUgraph capture_all(CUstream where, CUstreamCaptureMode mode)
{
	CUgraph captured = NULL;

	CHECK_OK(cuStreamBeginCapture_v2(where, mode));
	for (size_t i = 0; i < LAUNCHERS; i++)
		if (!launchers[i].to_default)
			CHECK_OK(launchers[i].call(launchers[i].linked, where));
	CHECK_OK(cuStreamEndCapture(where, &captured));
	return captured;
}

TEST(captured)
{
	static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
						    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
						    CU_STREAM_CAPTURE_MODE_RELAXED};
	struct attempt attempts[3];

	launch_start("4g");
	for (unsigned i = 0; i < 3; i++) {
		if (i % 2)
			suspend(getpid());
		else
			POKE(words->recent_kernel, -1);
		CHECK_OK(cuGraphInstantiateWithFlags(&graph, capture_all(stream, modes[i]), 0));
		attempt_stays(&attempts[i], &launchers[LAUNCHERS - 1 - i % 2]);
		POKE(words->recent_kernel, 0);
		resume(getpid());
		attempt_ends(&attempts[i], CUDA_SUCCESS);
	}
}

/* The thread's default stream by its name, which is NULL to functions of the other flavour. */
TEST(captured_per_thread)
{
	CUgraph graph_of_it;

	launch_start("4g");
	POKE(words->recent_kernel, -1);
	CHECK_OK(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
	for (size_t i = 0; i < LAUNCHERS; i++)
		if (launchers[i].per_thread)
			CHECK_OK(launchers[i].call(launchers[i].linked, NULL));
	CHECK_OK(launchers[0].call(launchers[0].linked, PER_THREAD));
	CHECK_OK(cuStreamEndCapture_ptsz(NULL, &graph_of_it));
}

/* Nobody waits for a launch that the driver refuses, as it does on the default stream while a
 * stream is captured that this would wait for. */
TEST(implicit)
{
	CUgraph none;
	CUstream blocking;

	launch_start("4g");
	CHECK_OK(cuStreamCreate(&blocking, 0));
	POKE(words->recent_kernel, -1);
	CHECK_OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK_EQUAL(cuLaunchKernel(nop, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
		    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	CHECK_EQUAL(cuLaunch(nop), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	CHECK_EQUAL(cuStreamEndCapture(blocking, &none), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* A spoilt capture is told at once. */
TEST(invalidated)
{
	CUgraph none;

	launch_start("4g");
	POKE(words->recent_kernel, -1);
	CHECK_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK(cuStreamSynchronize(stream) != CUDA_SUCCESS);
	CHECK_EQUAL(launch(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	CHECK_EQUAL(cuStreamEndCapture(stream, &none), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* Another stream's capture is no excuse. */
TEST(others_wait)
{
	struct attempt attempt;
	CUstream other;
	CUgraph graph_of_it;

	launch_start("4g");
	CHECK_OK(cuStreamCreate(&other, NON_BLOCKING));
	POKE(words->recent_kernel, -1);
	CHECK_OK(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
	attempt_stays(&attempt, &launchers[0]);
	CHECK_OK(launchers[0].call(launchers[0].linked, other));
	CHECK_OK(cuStreamEndCapture(other, &graph_of_it));
	attempt_waits(&attempt);
	POKE(words->recent_kernel, 0);
	attempt_ends(&attempt, CUDA_SUCCESS);
}

/* Nor is that of one which the default stream would wait for, to a thread's own default stream. */
TEST(per_thread_waits)
{
	struct attempt attempts[LAUNCHERS];
	CUstream blocking;
	CUgraph graph_of_it;

	launch_start("4g");
	CHECK_OK(cuStreamCreate(&blocking, 0));
	POKE(words->recent_kernel, -1);
	CHECK_OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	for (size_t i = 0; i < LAUNCHERS; i++)
		if (launchers[i].per_thread)
			attempt_begin(&attempts[i], &launchers[i], launchers[i].linked, NULL);
	sleep_ms(STAY_MS);
	for (size_t i = 0; i < LAUNCHERS; i++)
		if (launchers[i].per_thread)
			attempt_waits(&attempts[i]);
	CHECK_OK(cuStreamEndCapture(blocking, &graph_of_it));
	POKE(words->recent_kernel, 0);
	for (size_t i = 0; i < LAUNCHERS; i++)
		if (launchers[i].per_thread)
			attempt_ends(&attempts[i], CUDA_SUCCESS);
}
