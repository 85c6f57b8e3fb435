/*
 * shares [OPTION…]: which part of a GPU's time a program gets. tests/gpu/cores.sh runs it bare and
 * under quotas, in turn, and compares.
 *
 * It launches kernels that do a fixed amount of arithmetic: what they take on a GPU of their own is
 * measured once (--calibrate) and given to all later runs (--iters-per-us), as a run under a quota
 * cannot measure it. Work is counted in that unit. A kernel that gives way to others' time slices
 * takes longer, and counts the same.
 *
 * When each launch was done, an event behind it says, by the GPU's own clock, so that a thread that
 * is held in a launch misses nothing. The share of a run is the work after the first completion up
 * to the last, in the time between the two: launches come at intervals, and what begins in the
 * middle of one would count it wrong. In the share of a second, a launch counts for the time before
 * its completion that its work takes.
 *
 * What a GPU needs from one kernel of 20 us to the next depends on how it is fed: on one H200 such
 * a launch took 22.9 to 24.9 us, in one run much like that in the next. So the work that gets done
 * says little of such kernels' share of the GPU's time: --by-time counts that instead.
 *
 * The kernel is called spin_ns, and counts in its first parameter: over the simulated driver one of
 * that name takes as many nanoseconds, and calibration finds that out as it does on a GPU.
 */
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "cuda_abi.h"
#include "shares_options.h"

#define CU_HOOK(name, class, parameters, arguments) CUresult name parameters;
#define CU_CALL(name, class, parameters)            CUresult name parameters;
#define CU_SIM(name, class, parameters)             CUresult name parameters;
#include "cuda.def"

#define THREADS       1024 /* of a block: nothing else fits beside the arithmetic of two */
#define GRAPH_KERNELS 20
#define LENGTHS_MAX   16
#define US_PER_S      1e6
#define PAUSE         1.5 /* times what most launches took: the GPU had nothing to do in between */

#define NON_BLOCKING       1 /* a stream that does not wait for the default one */
#define BLOCKING_SYNC      1 /* who waits for the event sleeps */
#define PER_THREAD_STREAMS 2 /* of cuGetProcAddress */

/*
 * A chain in which each step waits for the one before. It goes to 1 from wherever it begins, which
 * takes little power, so that the clock stays; but who compiles it does not know where it begins,
 * and so cannot leave it out.
 */
static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			  ".visible .entry spin_ns(.param .u64 count, .param .u64 nowhere) {\n"
			  "  .reg .u64 %left, %to; .reg .u32 %t; .reg .f32 %x; .reg .pred %p;\n"
			  "  ld.param.u64 %left, [count];\n"
			  "  ld.param.u64 %to, [nowhere];\n"
			  "  mov.u32 %t, %tid.x;\n"
			  "  cvt.rn.f32.u32 %x, %t;\n"
			  "more:\n"
			  "  fma.rn.f32 %x, %x, 0f3F000000, 0f3F000000;\n"
			  "  fma.rn.f32 %x, %x, 0f3F000000, 0f3F000000;\n"
			  "  fma.rn.f32 %x, %x, 0f3F000000, 0f3F000000;\n"
			  "  fma.rn.f32 %x, %x, 0f3F000000, 0f3F000000;\n"
			  "  sub.u64 %left, %left, 1;\n"
			  "  setp.ne.u64 %p, %left, 0;\n"
			  "  @%p bra more;\n"
			  "  setp.lt.f32 %p, %x, 0f00000000;\n"
			  "  @%p st.global.f32 [%to], %x;\n"
			  "  ret;\n"
			  "}\n";

/* A kind of launch. */
struct length {
	double us; /* of all its kernels */
	uint64_t iters;
	CUfunction kernel;
	CUgraphExec graph; /* NULL: it is a kernel */
};

/* What was launched, and is done. */
struct done {
	double at_us; /* since origin */
	double us;
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
static CUcontext context;
static CUfunction kernel;
static CUdeviceptr nowhere;
static CUevent origin;   /* when it began, by the GPU's clock */
static double origin_us; /* and by the host's */
static struct worker workers[WORKERS_MAX];
static unsigned worker_count = 1;

/* The driver, for created streams or for each thread's default stream. */
static struct {
	CUresult (*kernel)(CUfunction f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			   unsigned, CUstream stream, void **parameters, void **extra);
	CUresult (*graph)(CUgraphExec graph, CUstream stream);
	CUresult (*record)(CUevent event, CUstream stream);
	CUresult (*synchronize)(CUstream stream);
} driver = {cuLaunchKernel, cuGraphLaunch, cuEventRecord, cuStreamSynchronize};

static double us_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec * US_PER_S + (double)t.tv_nsec / 1e3;
}

static void sleep_us(double us)
{
	struct timespec t = {(time_t)(us / US_PER_S), (long)(fmod(us, US_PER_S) * 1e3)};

	if (us > 0)
		nanosleep(&t, NULL);
}

static double now_us(void)
{
	return us_of(CLOCK_MONOTONIC) - origin_us;
}

static _Noreturn void fail(const char *what, const char *why)
{
	fprintf(stderr, "shares: %s: %s\n", what, why);
	exit(1);
}

static void must(CUresult result, const char *what)
{
	const char *name = "an unknown error";

	if (result == CUDA_SUCCESS)
		return;
	cuGetErrorName(result, &name);
	fail(what, name);
}

static void *allocate(void *old, size_t count, size_t size)
{
	void *new = realloc(old, count * size);

	if (!new)
		fail("realloc", "out of memory");
	return new;
}

/* -- the driver -------------------------------------------------------------------------------- */

/* Another function each time, of the same name. */
static CUfunction kernel_load(void)
{
	CUmodule module;
	CUfunction function;

	must(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
	must(cuModuleGetFunction(&function, module, "spin_ns"), "cuModuleGetFunction");
	return function;
}

static void start_up(void)
{
	must(cuInit(0), "cuInit");
	must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	kernel = kernel_load();
	must(cuMemAlloc_v2(&nowhere, 4096), "cuMemAlloc");
	must(cuEventCreate(&origin, 0), "cuEventCreate");
}

static void *find_per_thread(const char *name)
{
	CUdriverProcAddressQueryResult status;
	void *function = NULL;

	must(cuGetProcAddress_v2(name, &function, 12000, PER_THREAD_STREAMS, &status), name);
	if (!function)
		fail(name, "the driver has none for per-thread streams");
	return function;
}

static void use_per_thread_streams(void)
{
	*(void **)&driver.kernel = find_per_thread("cuLaunchKernel");
	*(void **)&driver.graph = find_per_thread("cuGraphLaunch");
	*(void **)&driver.record = find_per_thread("cuEventRecord");
	*(void **)&driver.synchronize = find_per_thread("cuStreamSynchronize");
}

static CUresult launch_kernel(CUfunction function, uint64_t iters, CUstream stream)
{
	void *parameters[] = {&iters, &nowhere};

	return driver.kernel(function, options.grid, 1, 1, THREADS, 1, 1, 0, stream, parameters,
			     NULL);
}

/* Some kernels, one after the other. */
static CUgraphExec graph_of(CUfunction function, uint64_t iters)
{
	void *parameters[] = {&iters, &nowhere};
	const CUDA_KERNEL_NODE_PARAMS node = {
		.func = function,
		.gridDimX = options.grid,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = THREADS,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = parameters,
	};
	CUgraphNode last = NULL;
	CUgraphExec executable;
	CUgraph graph;

	must(cuGraphCreate(&graph, 0), "cuGraphCreate");
	for (int i = 0; i < GRAPH_KERNELS; i++) {
		CUgraphNode before = last;

		must(cuGraphAddKernelNode_v2(&last, graph, &before, i > 0, &node),
		     "cuGraphAddKernelNode");
	}
	must(cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiate");
	return executable;
}

/* -- calibration ------------------------------------------------------------------------------- */

#define CALIBRATION_KERNELS 20
#define CALIBRATION_ROUNDS  9
#define CALIBRATION_WARM_US 200000

/* What so many kernels take, back to back. */
static double kernels_us(uint64_t iters, int count, CUstream stream, CUevent begin, CUevent end)
{
	float ms;

	must(launch_kernel(kernel, iters, stream),
	     "cuLaunchKernel"); /* the others queue up behind it */
	must(cuEventRecord(begin, stream), "cuEventRecord");
	for (int i = 0; i < count; i++)
		must(launch_kernel(kernel, iters, stream), "cuLaunchKernel");
	must(cuEventRecord(end, stream), "cuEventRecord");
	must(cuEventSynchronize(end), "cuEventSynchronize");
	must(cuEventElapsedTime(&ms, begin, end), "cuEventElapsedTime");
	return (double)ms * 1e3;
}

/* The best of several rounds of kernels of about a millisecond, once the GPU is warm. */
static double calibrate(void)
{
	double best_us = INFINITY, warm_at_us = us_of(CLOCK_MONOTONIC) + CALIBRATION_WARM_US;
	uint64_t iters = 1000;
	CUstream stream;
	CUevent begin, end;

	must(cuStreamCreate(&stream, NON_BLOCKING), "cuStreamCreate");
	must(cuEventCreate(&begin, 0), "cuEventCreate");
	must(cuEventCreate(&end, 0), "cuEventCreate");
	while (kernels_us(iters, 1, stream, begin, end) < 700)
		iters *= 2;
	while (us_of(CLOCK_MONOTONIC) < warm_at_us)
		kernels_us(iters, 1, stream, begin, end);
	for (int round = 0; round < CALIBRATION_ROUNDS; round++) {
		double us = kernels_us(iters, CALIBRATION_KERNELS, stream, begin, end);

		best_us = fmin(best_us, us);
	}
	must(cuEventDestroy_v2(begin), "cuEventDestroy");
	must(cuEventDestroy_v2(end), "cuEventDestroy");
	must(cuStreamDestroy_v2(stream), "cuStreamDestroy");
	return (double)iters * CALIBRATION_KERNELS / best_us;
}

static void length_add(double us)
{
	struct length *length = &lengths[length_count];
	double iters = us * options.iters_per_us;

	if (length_count == LENGTHS_MAX)
		fail("--kernel", "there are too many lengths");
	length->iters = iters < 1 ? 1 : (uint64_t)(iters + 0.5);
	length->us = (double)length->iters / options.iters_per_us;
	length->kernel =
		length_count == 0 || options.alike || options.round ? kernel : kernel_load();
	if (options.graph) {
		length->graph = graph_of(length->kernel, length->iters);
		length->us *= GRAPH_KERNELS;
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
		length_add(lengths[0].us / (options.graph ? GRAPH_KERNELS : 1) * 10);
}

/* -- what was done ----------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
	const struct done *x = a, *y = b;

	return (x->at_us > y->at_us) - (x->at_us < y->at_us);
}

/* From the first completion after that time to the last. */
static double share_since(const struct done *done, size_t count, double from_us)
{
	double work_us = 0;
	size_t first = 0;

	while (first < count && done[first].at_us < from_us)
		first++;
	for (size_t i = first + 1; i < count; i++)
		work_us += done[i].us;
	return first + 1 < count ? work_us / (done[count - 1].at_us - done[first].at_us) : 0;
}

static double share_between(const struct done *done, size_t count, double from_us, double to_us)
{
	double work_us = 0;

	for (size_t i = 0; i < count; i++) {
		double begin_us = fmax(done[i].at_us - done[i].us, from_us);
		double end_us = fmin(done[i].at_us, to_us);

		if (end_us > begin_us)
			work_us += end_us - begin_us;
	}
	return work_us / (to_us - from_us);
}

static double share_of_second(const struct done *done, size_t count, unsigned second)
{
	double from_us = (options.warm_s + second) * US_PER_S;

	return share_between(done, count, from_us, from_us + US_PER_S);
}

static int by_length(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Each launch counts for the time since the one before it was done. Where that is a pause, nobody
 * knows when it began: then it counts for as long as most others. The first, too. */
static void count_by_time(struct done *done, size_t count)
{
	double *took_us = allocate(NULL, count + 1, sizeof(*took_us)), most_us;

	for (size_t i = 1; i < count; i++)
		took_us[i] = done[i].us = done[i].at_us - done[i - 1].at_us;
	qsort(took_us + 1, count ? count - 1 : 0, sizeof(*took_us), by_length);
	most_us = count > 1 ? took_us[count / 2] : 0;
	for (size_t i = 0; i < count; i++)
		if (i == 0 || done[i].us > PAUSE * most_us)
			done[i].us = most_us;
	free(took_us);
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
	qsort(done, count, sizeof(*done), by_time);
	work = share_since(done, count, options.warm_s * US_PER_S);
	if (options.by_time)
		count_by_time(done, count);
	printf("share=%.5f work=%.5f windows=", share_since(done, count, options.warm_s * US_PER_S),
	       work);
	for (unsigned second = 0; second < (unsigned)options.seconds; second++)
		printf("%s%.5f", second ? "," : "", share_of_second(done, count, second));
	printf(" warm=%.5f cpu=%.2f launches=%llu iters_per_us=%.6f\n",
	       options.warm_s > 0 ? share_between(done, count, 0, options.warm_s * US_PER_S) : 0,
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

	must(length->graph ? driver.graph(length->graph, stream)
			   : launch_kernel(length->kernel, length->iters, stream),
	     length->graph ? "cuGraphLaunch" : "cuLaunchKernel");
	must(driver.record(flight->event, stream), "cuEventRecord");
	flight->us = length->us;
	worker->submitted++;
}

/* -- rounds ------------------------------------------------------------------------------------ */

static void wait_for_stream(CUstream stream, CUevent last)
{
	(void)last;
	must(driver.synchronize(stream), "cuStreamSynchronize");
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

	must(cuMemcpyDtoHAsync_v2(to, nowhere, sizeof(to), stream), "cuMemcpyDtoHAsync");
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
		fail("--round", "stream, context, event, questions or copy");
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

	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	while (now_us() < until_us) {
		if (worker->submitted - worker->settled == worker->ring_size) {
			if (options.in_flight) {
				settle_half(worker);
			} else {
				for (unsigned i = 0; i < options.streams; i++)
					must(driver.synchronize(worker->streams[i]),
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
		must(cuStreamCreate(&worker->streams[i], NON_BLOCKING), "cuStreamCreate");
}

/* Together with others that are told the same time. */
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
	origin_us = us_of(CLOCK_MONOTONIC);
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
	start_up();
	if (options.calibrate || options.iters_per_us == 0)
		options.iters_per_us = calibrate();
	if (options.calibrate) {
		printf("iters_per_us=%.6f\n", options.iters_per_us);
		return 0;
	}
	lengths_make();
	way_find();
	if (options.threads) {
		worker_count = options.threads;
		use_per_thread_streams();
	}
	run();
	return 0;
}
