/*
 * shares [OPTION…]: which part of a GPU's time a program gets. tests/gpu/cores.sh runs it bare and
 * under quotas, in turn, and compares.
 *
 * It launches kernels that do a fixed amount of arithmetic: what they take on a GPU of their own is
 * measured once (--calibrate) and given to all later runs (--iters-per-us), as a run under a quota
 * cannot measure it. Work is counted in that unit. A kernel that gives way to others' time slices
 * takes longer, and counts the same.
 *
 * An event after each launch shows, by the GPU's own clock, when the launch was done. So a thread
 * that is held in a launch misses nothing. The share of a run is the work after the first
 * completion up to the last, in the time between the two: launches come at intervals, and what
 * begins in the middle of one would count it wrong. In the share of a second, a launch counts for
 * the time before its completion that its work takes.
 *
 * What a GPU needs from one kernel of 20 us to the next depends on how it is fed: on one H200 such
 * a launch took 22.9 to 24.9 us, in one run much like that in the next. So the work that gets done
 * says little of such kernels' share of the GPU's time: --by-time counts that instead.
 */
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "shares_done.h"
#include "shares_gpu.h"
#include "shares_options.h"

#define LENGTHS_MAX 16

#define BLOCKING_SYNC 1 /* who waits for the event sleeps */

/* A kind of launch. */
struct length {
	double us; /* of all its kernels */
	uint64_t iters;
	CUfunction kernel;
	CUgraphExec graph; /* NULL: it is a kernel */
};

/* A place in the ring of what is in flight. */
struct flight {
	CUevent event;
	double us;
};

/* Of one thread. */
struct worker {
	pthread_t thread;
	CUstream streams[STREAMS_MAX];
	struct flight *ring;
	unsigned ring_size;
	uint64_t submitted, settled;
	struct done *done; /* as many as are settled */
	size_t done_room;
	uint64_t random;
	unsigned shown_s; /* of the seconds, how many --live has printed */
};

static struct length lengths[LENGTHS_MAX]; /* these: written before there are threads */
static unsigned length_count;
static CUevent origin;   /* when it began, by the GPU's clock */
static double origin_us; /* and by the host's */
static struct worker workers[WORKERS_MAX];
static unsigned worker_count = 1;

static void sleep_us(double us)
{
	struct timespec t = {(time_t)(us / US_PER_S), (long)(fmod(us, US_PER_S) * 1e3)};

	if (us > 0)
		nanosleep(&t, NULL);
}

static double now_us(void)
{
	return us_of(CLOCK_MONOTONIC_RAW) - origin_us;
}

static void *allocate(void *old, size_t count, size_t size)
{
	void *new = realloc(old, count * size);

	if (!new)
		fail("realloc", "out of memory");
	return new;
}

/* -- lengths ----------------------------------------------------------------------------------- */

static void length_add(double us)
{
	struct length *length = &lengths[length_count];
	double iters = us * options.iters_per_us;

	if (length_count == LENGTHS_MAX)
		fail("--kernel", "there are too many lengths");
	length->iters = iters < 1 ? 1 : (uint64_t)(iters + 0.5);
	length->us = (double)length->iters / options.iters_per_us;
	length->kernel = length_count == 0 || options.alike || options.round ? gpu_kernel
									     : gpu_kernel_load();
	if (options.graph) {
		length->graph = gpu_graph_of(length->kernel, length->iters);
		length->us *= GPU_GRAPH_KERNELS;
	}
	length_count++;
}

static void lengths_make(void)
{
	const char *text = options.kernel;
	char *end;

	for (;; text = end + 1) {
		double us = strtod(text, &end);

		if (end == text || us <= 0 || (*end && *end != ','))
			fail("--kernel", "not a list of lengths in microseconds");
		length_add(us);
		if (!*end)
			break;
	}
	if (options.change && length_count > 1)
		fail("--change", "is for one length");
	options.alike |= options.change;
	if (options.change)
		length_add(lengths[0].us / (options.graph ? GPU_GRAPH_KERNELS : 1) * 10);
}

/* -- what was done ----------------------------------------------------------------------------- */

static double share_of_second(const struct done *done, size_t count, unsigned second)
{
	double from_us = (options.warm_s + second) * US_PER_S;

	return done_share_between(done, count, from_us, from_us + US_PER_S);
}

static void print_results(double cpu_share)
{
	struct done *done = NULL;
	uint64_t launches = 0;
	size_t count = 0;
	double work;

	for (unsigned i = 0; i < worker_count; i++) {
		const struct worker *worker = &workers[i];

		done = allocate(done, count + worker->settled + 1, sizeof(*done));
		memcpy(done + count, worker->done, worker->settled * sizeof(*done));
		count += worker->settled;
		launches += worker->submitted;
	}
	done_sort(done, count);
	work = done_share_since(done, count, options.warm_s * US_PER_S);
	if (options.by_time && !done_count_by_time(done, count))
		fail("calloc", "out of memory");
	printf("share=%.5f work=%.5f windows=",
	       done_share_since(done, count, options.warm_s * US_PER_S), work);
	for (unsigned second = 0; second < (unsigned)options.seconds; second++)
		printf("%s%.5f", second ? "," : "", share_of_second(done, count, second));
	printf(" warm=%.5f cpu=%.2f launches=%llu iters_per_us=%.6f\n",
	       options.warm_s > 0 ? done_share_between(done, count, 0, options.warm_s * US_PER_S)
				  : 0,
	       cpu_share * 100, (unsigned long long)launches, options.iters_per_us);
	free(done);
}

/* Each second, once what was launched in it is done. */
static void show(struct worker *worker)
{
	double over_us = (options.warm_s + worker->shown_s + 1.05) * US_PER_S;

	if (!options.live || now_us() < over_us || worker->shown_s >= (unsigned)options.seconds)
		return;
	printf("second=%u share=%.3f\n", worker->shown_s + 1,
	       share_of_second(worker->done, worker->settled, worker->shown_s));
	fflush(stdout);
	worker->shown_s++;
}

/* -- launching --------------------------------------------------------------------------------- */

/* Of the launches in flight, the first is done, or is waited for. */
static void settle(struct worker *worker)
{
	struct flight *flight = &worker->ring[worker->settled % worker->ring_size];
	float ms;

	must(cuEventSynchronize(flight->event), "cuEventSynchronize");
	must(cuEventElapsedTime(&ms, origin, flight->event), "cuEventElapsedTime");
	if (worker->settled == worker->done_room) {
		worker->done_room = 2 * worker->done_room + 1024;
		worker->done = allocate(worker->done, worker->done_room, sizeof(*worker->done));
	}
	worker->done[worker->settled++] = (struct done){(double)ms * 1e3, flight->us};
	show(worker);
}

/* So that it wakes up once for several short ones. */
static void settle_half(struct worker *worker)
{
	uint64_t until = worker->settled + (worker->ring_size + 1) / 2;

	must(cuEventSynchronize(worker->ring[(until - 1) % worker->ring_size].event),
	     "cuEventSynchronize");
	while (worker->settled < until)
		settle(worker);
}

static void settle_all(struct worker *worker)
{
	while (worker->settled < worker->submitted)
		settle(worker);
}

static const struct length *pick(struct worker *worker)
{
	if (options.round)
		return &lengths[worker->submitted % length_count];
	if (options.change)
		return &lengths[(long)fmax(now_us() / US_PER_S - options.warm_s, 0) & 1];
	worker->random = worker->random * 6364136223846793005u + 1442695040888963407u;
	return &lengths[(worker->random >> 33) % length_count];
}

static void submit(struct worker *worker)
{
	CUstream stream = worker->streams[worker->submitted % options.streams];
	struct flight *flight = &worker->ring[worker->submitted % worker->ring_size];
	const struct length *length = pick(worker);

	must(length->graph ? gpu_driver.graph(length->graph, stream)
			   : gpu_launch(length->kernel, length->iters, stream),
	     length->graph ? "cuGraphLaunch" : "cuLaunchKernel");
	must(gpu_driver.record(flight->event, stream), "cuEventRecord");
	flight->us = length->us;
	worker->submitted++;
}

/* -- rounds ------------------------------------------------------------------------------------ */

static void wait_for_stream(CUstream stream, CUevent last)
{
	(void)last;
	must(gpu_driver.synchronize(stream), "cuStreamSynchronize");
}

static void wait_for_context(CUstream stream, CUevent last)
{
	(void)stream, (void)last;
	must(cuCtxSynchronize(), "cuCtxSynchronize");
}

static void wait_for_event(CUstream stream, CUevent last)
{
	(void)stream;
	must(cuEventSynchronize(last), "cuEventSynchronize");
}

static void ask_event(CUstream stream, CUevent last)
{
	CUresult result;

	(void)stream;
	while ((result = cuEventQuery(last)) == CUDA_ERROR_NOT_READY)
		;
	must(result, "cuEventQuery");
}

static void copy_and_wait(CUstream stream, CUevent last)
{
	static char to[4096];

	must(cuMemcpyDtoHAsync_v2(to, gpu_nowhere, sizeof(to), stream), "cuMemcpyDtoHAsync");
	wait_for_stream(stream, last);
}

static const struct way {
	const char *name;
	void (*wait)(CUstream stream, CUevent last);
} ways[] = {
	{"stream", wait_for_stream}, {"context", wait_for_context}, {"event", wait_for_event},
	{"questions", ask_event},    {"copy", copy_and_wait},
};

static const struct way *way; /* of options.round; NULL: there are no rounds */

static void way_find(void)
{
	for (size_t i = 0; options.round && i < sizeof(ways) / sizeof(ways[0]); i++)
		if (!strcmp(options.round, ways[i].name))
			way = &ways[i];
	if (options.round && !way)
		fail("--round", "stream, gpu_context, event, questions or copy");
	if (way)
		options.in_flight = length_count;
}

static void end_round(struct worker *worker)
{
	uint64_t last = worker->submitted - 1;

	way->wait(worker->streams[last % options.streams],
		  worker->ring[last % worker->ring_size].event);
	settle_all(worker);
}

/* What a program does that has work of its own for the rest of the time. */
static void work_on_host(struct worker *worker)
{
	double us = worker->ring[(worker->submitted - 1) % worker->ring_size].us;

	settle_all(worker);
	sleep_us(us * (100 - options.use_pct) / options.use_pct);
}

static void *work(void *of)
{
	struct worker *worker = of;
	double until_us = (options.warm_s + options.seconds) * US_PER_S;

	must(cuCtxSetCurrent(gpu_context), "cuCtxSetCurrent");
	while (now_us() < until_us) {
		if (worker->submitted - worker->settled == worker->ring_size) {
			if (options.in_flight) {
				settle_half(worker);
			} else {
				for (unsigned i = 0; i < options.streams; i++)
					must(gpu_driver.synchronize(worker->streams[i]),
					     "cuStreamSynchronize");
				settle_all(worker);
			}
		}
		submit(worker);
		if (way && worker->submitted % length_count == 0)
			end_round(worker);
		if (options.use_pct)
			work_on_host(worker);
	}
	settle_all(worker);
	while (options.live && worker->shown_s < (unsigned)options.seconds) {
		sleep_us(10000);
		show(worker);
	}
	return NULL;
}

/* Each that can be slept for interrupts a processor when it comes: only those that are
 * (settle_half). */
static bool is_slept_for(const struct worker *worker, unsigned place)
{
	unsigned half = worker->ring_size / 2;

	return options.use_pct || !options.in_flight || worker->ring_size % 2 ||
	       (place + 1) % half == 0;
}

static void worker_make(struct worker *worker, unsigned number)
{
	worker->ring_size =
		(options.in_flight ? options.in_flight : options.sync_every) * options.streams;
	worker->ring = allocate(NULL, worker->ring_size, sizeof(*worker->ring));
	worker->random = number + 1;
	for (unsigned i = 0; i < worker->ring_size; i++)
		must(cuEventCreate(&worker->ring[i].event,
				   is_slept_for(worker, i) ? BLOCKING_SYNC : 0),
		     "cuEventCreate");
	for (unsigned i = 0; !options.threads && i < options.streams; i++)
		must(cuStreamCreate(&worker->streams[i], GPU_NON_BLOCKING), "cuStreamCreate");
}

/* Waits for the begin, so that all programs that are given the same time begin together. */
static void wait_for_begin(void)
{
	double wait_us = options.begin_s * US_PER_S - us_of(CLOCK_REALTIME);

	if (options.begin_s == 0)
		return;
	if (wait_us <= 0)
		fail("--begin", "that was before all was ready");
	sleep_us(wait_us);
}

static void run(void)
{
	double cpu_us;

	for (unsigned i = 0; i < worker_count; i++)
		worker_make(&workers[i], i);
	wait_for_begin();
	must(cuEventRecord(origin, NULL), "cuEventRecord");
	must(cuEventSynchronize(origin), "cuEventSynchronize");
	origin_us = us_of(CLOCK_MONOTONIC_RAW);
	cpu_us = us_of(CLOCK_PROCESS_CPUTIME_ID);
	for (unsigned i = 1; i < worker_count; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			fail("pthread_create", "no thread");
	work(&workers[0]);
	for (unsigned i = 1; i < worker_count; i++)
		pthread_join(workers[i].thread, NULL);
	print_results((us_of(CLOCK_PROCESS_CPUTIME_ID) - cpu_us) / now_us());
}

int main(int argc, char **argv)
{
	options_read(argc, argv);
	prctl(PR_SET_TIMERSLACK,
	      1); /* sleeps of a host that has work are as long as they are meant */
	gpu_start();
	must(cuEventCreate(&origin, 0), "cuEventCreate");
	if (options.calibrate || options.iters_per_us == 0)
		options.iters_per_us = gpu_calibrate();
	if (options.calibrate) {
		printf("iters_per_us=%.6f\n", options.iters_per_us);
		return 0;
	}
	lengths_make();
	way_find();
	if (options.threads) {
		worker_count = options.threads;
		gpu_use_per_thread_streams();
	}
	run();
	return 0;
}
