/* Whichever way a program waits, what one function takes for short and for long is charged as what
 * it is; and what a thread launched to is not touched when it is gone. */
#include "pace.h"

#define ROUND_SHORTS 10
#define SHORT_NS     (50 * (uint64_t)1000)
#define LONG_NS      (3 * (uint64_t)MS)
#define COPIED       ((size_t)64 << 10)

typedef void wait_fn(void);

static CUevent event;
static CUdeviceptr there;
static unsigned char here[COPIED];

static void record(void)
{
	CHECK_OK(cuEventRecord(event, stream));
}

static void for_event(void)
{
	record();
	CHECK_OK(cuEventSynchronize(event));
}

static void for_stream(void)
{
	CHECK_OK(cuStreamSynchronize(stream));
}

static void for_stream_of_thread(void)
{
	CHECK_OK(cuStreamSynchronize_ptsz(stream));
}

static void for_context(void)
{
	CHECK_OK(cuCtxSynchronize());
}

static void for_that_context(void)
{
	CHECK_OK(cuCtxSynchronize_v2(context));
}

static void asks_event(void)
{
	CUresult result;

	record();
	while ((result = cuEventQuery(event)) == CUDA_ERROR_NOT_READY)
		usleep(20);
	CHECK_OK(result);
}

static void asks_stream(void)
{
	CUresult result;

	while ((result = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY)
		usleep(20);
	CHECK_OK(result);
}

static void asks_stream_of_thread(void)
{
	CUresult result;

	while ((result = cuStreamQuery_ptsz(stream)) == CUDA_ERROR_NOT_READY)
		usleep(20);
	CHECK_OK(result);
}

static void copies(void)
{
	CHECK_OK(cuMemcpyDtoHAsync_v2(here, there, COPIED, stream));
	for_stream();
}

static unsigned called;

static void count(void *data)
{
	(void)data;
	called++;
}

static void count_back(CUstream of, CUresult status, void *data)
{
	CHECK(of == stream);
	CHECK_OK(status);
	count(data);
}

#define WAITS_FOR(name) CHECK_OK(name(stream, there, 1, 0))

/* For values that are there by then. */
static void for_values(void)
{
	CHECK_OK(cuStreamWriteValue64_v2(stream, there, 1, 0));
	WAITS_FOR(cuStreamWaitValue32);
	WAITS_FOR(cuStreamWaitValue32_ptsz);
	WAITS_FOR(cuStreamWaitValue32_v2);
	WAITS_FOR(cuStreamWaitValue32_v2_ptsz);
	WAITS_FOR(cuStreamWaitValue64);
	WAITS_FOR(cuStreamWaitValue64_ptsz);
	WAITS_FOR(cuStreamWaitValue64_v2);
	WAITS_FOR(cuStreamWaitValue64_v2_ptsz);
}

/* The stream is made to wait, and the host for the stream. */
static void stalls(void)
{
	unsigned before = called;

	record();
	CHECK_OK(cuStreamWaitEvent(stream, event, 0));
	CHECK_OK(cuStreamWaitEvent_ptsz(stream, event, 0));
	CHECK_OK(cuLaunchHostFunc(stream, count, NULL));
	CHECK_OK(cuLaunchHostFunc_ptsz(stream, count, NULL));
	CHECK_OK(cuStreamAddCallback(stream, count_back, NULL, 0));
	CHECK_OK(cuStreamAddCallback_ptsz(stream, count_back, NULL, 0));
	for_values();
	for_stream();
	CHECK(called == before + 4);
}

/* One function, one shape. */
static uint64_t step(void *wait)
{
	for (unsigned i = 0; i < ROUND_SHORTS; i++)
		busy(spin, SHORT_NS, stream);
	busy(spin, LONG_NS, stream);
	(*(wait_fn **)wait)();
	return ROUND_SHORTS * SHORT_NS + LONG_NS;
}

static const struct way {
	const char *name;
	wait_fn *wait;
} all_ways[] = {
	{"for_event_way", for_event},
	{"for_stream_way", for_stream},
	{"for_stream_of_thread_way", for_stream_of_thread},
	{"for_context_way", for_context},
	{"for_that_context_way", for_that_context},
	{"asks_event_way", asks_event},
	{"asks_stream_way", asks_stream},
	{"asks_stream_of_thread_way", asks_stream_of_thread},
	{"copies_way", copies},
	{"stalls_way", stalls},
};

static void is_held(const struct way *way)
{
	wait_fn *wait = way->wait;

	pace_start("40");
	CHECK_OK(cuEventCreate(&event, 0));
	there = take(COPIED);
	check_share(way->name, step, &wait, 40);
}
TEST_TABLE(all_ways, is_held);

/* -- streams that end -------------------------------------------------------------------------- */

static CUstream brief;
static uint64_t rounds; /* of the other thread: odd while it launches and waits */

/* What it launched to, the main thread destroys, while this one waits for an event. */
static void *waits(void *arg)
{
	CUevent other;

	CHECK_OK(cuCtxSetCurrent(context));
	CHECK_OK(cuEventCreate(&other, 0));
	for (unsigned n = 0; n < *(unsigned *)arg; n++) {
		while (PEEK(rounds) != 2 * n + 1)
			usleep(10);
		for (unsigned i = 0; i < 5; i++)
			busy(spin, SHORT_NS, brief);
		CHECK_OK(cuEventRecord(other, brief));
		POKE(rounds, 2 * n + 2);
		CHECK_OK(cuEventSynchronize(other));
		while (cuEventQuery(other) == CUDA_ERROR_NOT_READY)
			;
	}
	return NULL;
}

TEST(ended)
{
	wait_fn *wait = for_event;
	unsigned count = 300;
	pthread_t thread;

	pace_start("40");
	CHECK(pthread_create(&thread, NULL, waits, &count) == 0);
	for (unsigned n = 0; n < count; n++) {
		CHECK_OK(cuStreamCreate(&brief, NON_BLOCKING));
		POKE(rounds, 2 * n + 1);
		while (PEEK(rounds) != 2 * n + 2)
			usleep(10);
		CHECK_OK(n % 2 ? cuStreamDestroy_v2(brief) : cuStreamDestroy(brief));
	}
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK_OK(cuEventCreate(&event, 0));
	step(&wait);
	sleep_ms(600); /* until then, threads have taken turns */
	check_share("after streams ended", step, &wait, 40);
}
