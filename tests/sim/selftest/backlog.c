/*
 * What streams are given behind what is still to happen: collectives of devices, threads and
 * processes, functions of the host, values that are waited for, copies that take time.
 */
#include "selftest.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MS selftest_ms

static const char ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry spin_ns(.param .u64 ns) { ret; }\n"
	".visible .entry collective(.param .u64 c, .param .u64 n, .param .u64 ns) { ret; }\n";

/* A device of this process. */
struct gpu {
	CUcontext context;
	CUfunction spin, collective;
	CUstream stream, other;
};

static void gpu_use(const struct gpu *gpu)
{
	CHECK_OK(cuCtxSetCurrent(gpu->context));
}

static struct gpu gpu_open(CUdevice device)
{
	struct gpu gpu;
	CUmodule module;

	CHECK_OK(cuInit(0));
	CHECK_OK(cuDevicePrimaryCtxRetain(&gpu.context, device));
	gpu_use(&gpu);
	CHECK_OK(cuModuleLoadData(&module, ptx));
	CHECK_OK(cuModuleGetFunction(&gpu.spin, module, "spin_ns"));
	CHECK_OK(cuModuleGetFunction(&gpu.collective, module, "collective"));
	CHECK_OK(cuStreamCreate(&gpu.stream, 1));
	CHECK_OK(cuStreamCreate(&gpu.other, 1));
	return gpu;
}

static void spin(const struct gpu *gpu, CUstream stream, uint64_t ns)
{
	void *parameters[] = {&ns};

	CHECK_OK(cuLaunchKernel(gpu->spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static CUresult try_collective(const struct gpu *gpu, CUstream stream, uint64_t communicator,
			       uint64_t ranks, uint64_t ns)
{
	void *parameters[] = {&communicator, &ranks, &ns};

	return cuLaunchKernel(gpu->collective, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static void collective(const struct gpu *gpu, CUstream stream, uint64_t communicator,
		       uint64_t ranks, uint64_t ns)
{
	CHECK_OK(try_collective(gpu, stream, communicator, ranks, ns));
}

static CUevent event_new(CUstream stream)
{
	CUevent event;

	CHECK_OK(cuEventCreate(&event, 0));
	CHECK_OK(cuEventRecord(event, stream));
	return event;
}

/* Of the GPU's time, between two events that have happened. */
static double between(CUevent from, CUevent to)
{
	float ms = -1;

	CHECK_OK(cuEventElapsedTime(&ms, from, to));
	return (double)ms * 1e6;
}

static void sleep_ns(uint64_t ns)
{
	struct timespec span = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

	while (nanosleep(&span, &span))
		;
}

/* -- collectives ------------------------------------------------------------------------------ */

/* Two devices, one thread: the first spins until the second has begun, and whatever is behind it or
 * after its events waits; its other stream does not. */
static void test_devices(void *argument)
{
	struct gpu a = gpu_open(0), b = gpu_open(1);
	CUevent begin, end, joined;

	(void)argument;
	gpu_use(&a);
	begin = event_new(a.stream);
	collective(&a, a.stream, 7, 2, 2 * MS);
	spin(&a, a.stream, MS);
	end = event_new(a.stream);
	CHECK_EQUAL(cuEventQuery(end), CUDA_ERROR_NOT_READY);
	spin(&a, a.other, MS);
	CHECK_OK(cuStreamSynchronize(a.other));
	CHECK_OK(cuStreamWaitEvent(a.other, end, 0));
	spin(&a, a.other, MS);
	joined = event_new(a.other);
	sleep_ns(30 * MS);
	CHECK_EQUAL(cuStreamQuery(a.stream), CUDA_ERROR_NOT_READY);
	CHECK_EQUAL(cuStreamQuery(a.other), CUDA_ERROR_NOT_READY);
	CHECK_EQUAL(cuEventQuery(joined), CUDA_ERROR_NOT_READY);
	gpu_use(&b);
	spin(&b, b.stream, 10 * MS);
	collective(&b, b.stream, 7, 2, 2 * MS);
	CHECK_OK(cuStreamSynchronize(b.stream));
	gpu_use(&a);
	CHECK_OK(cuEventSynchronize(joined));
	CHECK_OK(cuEventQuery(end));
	CHECK(between(begin, end) >= 42.9 * (double)MS);
	CHECK(between(end, joined) >= (double)MS * 0.99);
	CHECK_OK(cuCtxSynchronize());
	CHECK_EQUAL(try_collective(&a, a.stream, 0, 2, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(try_collective(&a, a.stream, 7, 0, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(try_collective(&a, a.stream, 7, 65, 1), CUDA_ERROR_INVALID_VALUE);
}

/* Many rounds ahead of the host, of two communicators in turn: as long as the slower rank takes. */
static void test_rounds(void *argument)
{
	enum { ROUNDS = 40 };
	struct gpu a = gpu_open(0), b = gpu_open(1);
	CUevent begin, end;

	(void)argument;
	gpu_use(&b);
	begin = event_new(b.stream);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		gpu_use(&a);
		collective(&a, a.stream, 21 + i % 2, 2, MS / 4);
		gpu_use(&b);
		spin(&b, b.stream, MS / 2);
		collective(&b, b.stream, 21 + i % 2, 2, MS / 4);
	}
	end = event_new(b.stream);
	CHECK_OK(cuEventSynchronize(end));
	double took = between(begin, end), all = ROUNDS * 0.75 * (double)MS;
	CHECK(took >= all * 0.99 && took < 2 * all + 100.0 * (double)MS);
	gpu_use(&a);
	CHECK_OK(cuStreamSynchronize(a.stream));
}

/* The same captured: launched twice, it is two rounds. */
static void test_graphs(void *argument)
{
	struct gpu gpus[] = {gpu_open(0), gpu_open(1)};
	CUgraphExec execs[2];
	CUgraph graph;

	(void)argument;
	for (int i = 0; i < 2; i++) {
		const struct gpu *gpu = &gpus[i];

		gpu_use(gpu);
		CHECK_OK(cuStreamBeginCapture_v2(gpu->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		spin(gpu, gpu->stream, MS);
		collective(gpu, gpu->stream, 31, 2, MS);
		spin(gpu, gpu->stream, MS);
		CHECK_OK(cuStreamEndCapture(gpu->stream, &graph));
		CHECK_OK(cuGraphInstantiateWithFlags(&execs[i], graph, 0));
	}
	gpu_use(&gpus[0]);
	CUevent begin = event_new(gpus[0].stream);
	CHECK_OK(cuGraphLaunch(execs[0], gpus[0].stream));
	CHECK_OK(cuGraphLaunch(execs[0], gpus[0].other)); /* after the first */
	CUevent end = event_new(gpus[0].other);
	sleep_ns(10 * MS);
	CHECK_EQUAL(cuEventQuery(end), CUDA_ERROR_NOT_READY);
	gpu_use(&gpus[1]);
	CHECK_OK(cuGraphLaunch(execs[1], gpus[1].stream));
	CHECK_OK(cuStreamSynchronize(gpus[1].stream));
	gpu_use(&gpus[0]);
	CHECK_OK(cuStreamSynchronize(gpus[0].stream));
	CHECK_EQUAL(cuEventQuery(end), CUDA_ERROR_NOT_READY);
	gpu_use(&gpus[1]);
	CHECK_OK(cuGraphLaunch(execs[1], gpus[1].stream));
	gpu_use(&gpus[0]);
	CHECK_OK(cuEventSynchronize(end));
	CHECK(between(begin, end) >= 13.9 * (double)MS);
	CHECK_OK(cuGraphExecDestroy(execs[0]));
}

static void *ranks_in_thread(void *argument)
{
	const struct gpu *gpu = argument;

	gpu_use(gpu);
	for (unsigned i = 0; i < 50; i++) {
		spin(gpu, gpu->stream, 100000);
		collective(gpu, gpu->stream, 41, 2, 100000);
		if (i % 5 == 4)
			CHECK_OK(cuStreamSynchronize(gpu->stream));
	}
	return NULL;
}

static void test_threads(void *argument)
{
	struct gpu a = gpu_open(0), b = gpu_open(1);
	pthread_t thread;

	(void)argument;
	CHECK_EQUAL(pthread_create(&thread, NULL, ranks_in_thread, &b), 0);
	ranks_in_thread(&a);
	CHECK_EQUAL(pthread_join(thread, NULL), 0);
}

static unsigned busy_pct(unsigned index)
{
	nvmlUtilization_t utilization;
	nvmlDevice_t device;

	CHECK_OK(nvmlDeviceGetHandleByIndex_v2(index, &device));
	CHECK_OK(nvmlDeviceGetUtilizationRates(device, &utilization));
	return utilization.gpu;
}

struct in_process {
	CUdevice device;
	uint64_t communicator;
	unsigned rounds;
	bool waits;
};

static void ranks_in_process(void *argument)
{
	const struct in_process *how = argument;
	struct gpu gpu = gpu_open(how->device);
	uint64_t start = selftest_now_ns();

	for (unsigned i = 0; i < how->rounds; i++) {
		spin(&gpu, gpu.stream, 200000);
		collective(&gpu, gpu.stream, how->communicator, 2, 200000);
	}
	if (!how->waits)
		return;
	CHECK_OK(cuStreamSynchronize(gpu.stream));
	CHECK(selftest_now_ns() - start < 200 * MS);
}

/* The host of the first rank has queued everything and does nothing more. */
static void test_processes(void)
{
	struct in_process first = {0, 51, 30, false}, second = {1, 51, 30, true};
	struct selftest_child child = selftest_child_start(ranks_in_process, &first);

	selftest_child_run(ranks_in_process, &second);
	selftest_child_end(&child);
}

/* A rank that misses a round, or is killed, leaves the other spinning: it keeps its GPU busy,
 * others have it nevertheless, and it can be killed. */
static void test_killed(void)
{
	struct in_process first = {0, 61, 3, false}, second = {1, 61, 2, true},
			  beside = {0, 62, 0, true};
	struct selftest_child child = selftest_child_start(ranks_in_process, &first);

	selftest_child_run(ranks_in_process, &second);
	for (unsigned i = 0; i < 100 && busy_pct(0) < 50; i++)
		sleep_ns(20 * MS);
	CHECK(busy_pct(0) >= 50);
	selftest_child_run(ranks_in_process, &beside);
	selftest_child_kill(&child);
}

/* Kernels in another stream while a collective spins: the GPU is busy once. */
static void test_busy(void *argument)
{
	struct gpu a = gpu_open(0), b = gpu_open(1);

	(void)argument;
	CHECK_OK(nvmlInit_v2());
	gpu_use(&a);
	CUevent begin = event_new(a.stream);
	collective(&a, a.stream, 81, 2, 1);
	spin(&a, a.other, 200000000);
	collective(&a, a.other, 82, 2, 1);
	CUevent end = event_new(a.other);
	sleep_ns(300000000);
	gpu_use(&b);
	collective(&b, b.stream, 81, 2, 1);
	collective(&b, b.stream, 82, 2, 1);
	gpu_use(&a);
	CHECK_OK(cuEventSynchronize(end));
	sleep_ns(70000000); /* the period in which that was is over */
	double expected = between(begin, end) / 1e7, pct = busy_pct(0);
	CHECK(pct + 8 >= expected && pct <= expected + 8);
	CHECK_EQUAL(busy_pct(1), 0);
}

/* -- stalls ----------------------------------------------------------------------------------- */

static _Atomic unsigned called;

static void call_slowly(void *data)
{
	sleep_ns(20 * MS);
	CHECK_EQUAL(atomic_fetch_add(&called, 1) + 1, *(unsigned *)data);
}

static void callback(CUstream stream, CUresult status, void *data)
{
	CHECK(!stream || status == CUDA_SUCCESS);
	call_slowly(data);
}

/* In the stream's order, and in nobody's way. */
static void test_calls(void *argument)
{
	struct gpu gpu = gpu_open(0);
	unsigned first = 1, second = 2;
	uint64_t start = selftest_now_ns();

	(void)argument;
	spin(&gpu, gpu.stream, MS);
	CHECK_OK(cuLaunchHostFunc(gpu.stream, call_slowly, &first));
	CHECK_OK(cuStreamAddCallback(gpu.stream, callback, &second, 0));
	CHECK_EQUAL(cuStreamAddCallback(gpu.stream, NULL, &second, 0), CUDA_ERROR_INVALID_VALUE);
	spin(&gpu, gpu.stream, MS);
	CHECK_EQUAL(cuStreamQuery(gpu.stream), CUDA_ERROR_NOT_READY);
	spin(&gpu, gpu.other, MS);
	CHECK_OK(cuStreamSynchronize(gpu.other));
	CHECK_OK(cuStreamSynchronize(gpu.stream));
	CHECK_EQUAL(atomic_load(&called), 2);
	CHECK(selftest_now_ns() - start >= 42 * MS);
}

static void test_values(void *argument)
{
	struct gpu gpu = gpu_open(0);
	CUdeviceptr word;
	uint64_t wide = 0;

	(void)argument;
	CHECK_OK(cuMemAlloc_v2(&word, 16));
	CHECK_OK(cuMemsetD32_v2(word, 0, 4));
	CHECK_OK(cuStreamWaitValue32(gpu.stream, word, 2, 0));
	CHECK_EQUAL(cuStreamWaitValue32_v2(gpu.stream, word + 2, 2, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuStreamWaitValue32(gpu.stream, word, 2, 4), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuStreamWriteValue64(gpu.stream, word + 8, (uint64_t)7 << 40, 0));
	CHECK_OK(cuStreamWriteValue32(gpu.other, word, 1, 0));
	CHECK_OK(cuStreamSynchronize(gpu.other));
	CHECK_EQUAL(cuStreamQuery(gpu.stream), CUDA_ERROR_NOT_READY);
	spin(&gpu, gpu.other, 10 * MS);
	CHECK_OK(cuStreamWriteValue32(gpu.other, word, 3, 0));
	CHECK_OK(cuStreamWaitValue64(gpu.stream, word + 8, (uint64_t)7 << 40, 1));
	CHECK_OK(cuStreamSynchronize(gpu.stream));
	CHECK_OK(cuMemcpyDtoH_v2(&wide, word + 8, 8));
	CHECK(wide == (uint64_t)7 << 40);
	CHECK_OK(cuMemFree_v2(word));
}

/* From the host in 20 of these milliseconds: the stream waits for it, and who waits for an event
 * behind it; the host and the GPU do not. */
static void test_copies(void *argument)
{
	enum { BYTES = 20000000 };
	char *host = calloc(1, BYTES), speed[16];
	uint64_t start = selftest_now_ns();
	CUdeviceptr device;
	CUstream third;
	char back = 0;

	(void)argument;
	snprintf(speed, sizeof speed, "%llu", 1000000000ull / MS);
	setenv("VGPU_SIM_HOST_COPY_MB_S", speed, 1);
	struct gpu gpu = gpu_open(0);
	CHECK_OK(cuStreamCreate(&third, 1));
	CHECK_OK(cuMemAlloc_v2(&device, BYTES));
	host[1] = 5;
	CUevent begin = event_new(gpu.other);
	CHECK_OK(cuMemcpyHtoDAsync_v2(device, host, BYTES, gpu.other));
	CUevent copied = event_new(gpu.other);
	CHECK_OK(cuStreamWaitEvent(gpu.stream, copied, 0));
	spin(&gpu, gpu.stream, MS);
	CHECK_OK(cuMemcpyDtoHAsync_v2(&back, device + 1, 1, gpu.stream));
	CUevent end = event_new(gpu.stream);
	spin(&gpu, third, MS);
	CUevent beside = event_new(third);
	CHECK_OK(cuStreamSynchronize(gpu.stream));
	CHECK(selftest_now_ns() - start >= 21 * MS);
	CHECK_EQUAL(back, 5);
	CHECK(between(begin, copied) >= 19.9 * (double)MS);
	CHECK(between(copied, end) >= 0.9 * (double)MS);
	CHECK(between(begin, beside) < between(begin, copied));
	start = selftest_now_ns();
	CHECK_OK(cuMemcpyDtoH_v2(host, device, BYTES));
	CHECK(selftest_now_ns() - start >= 20 * MS);
	free(host);
}

/* The context's end is the end of what can have none. */
static void test_end(void *argument)
{
	struct gpu gpu = gpu_open(0);
	CUcontext context;
	CUstream stream;
	CUevent event;

	(void)argument;
	CHECK_OK(cuCtxCreate_v2(&context, 0, 0));
	CHECK_OK(cuStreamCreate(&stream, 0));
	collective(&gpu, stream, 71, 2, MS);
	CHECK_EQUAL(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	event = event_new(NULL);
	CHECK_OK(cuStreamDestroy_v2(stream));
	CHECK_EQUAL(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	CHECK_OK(cuCtxRecordEvent(context, event));
	CHECK_EQUAL(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	CHECK_OK(cuCtxDestroy_v2(context));
	gpu_use(&gpu);
	CHECK_OK(cuCtxSynchronize());
}

static void test_all(void)
{
	static void (*const tests[])(void *) = {test_devices, test_rounds, test_graphs,
						test_threads, test_calls,  test_values,
						test_copies,  test_end,    test_busy};

	for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
		selftest_child_run(tests[i], NULL);
	CHECK_OK(nvmlInit_v2());
	test_processes();
	test_killed();
}

int main(void)
{
	selftest_begin("2x8G");
	return selftest_unhurried(test_all);
}
