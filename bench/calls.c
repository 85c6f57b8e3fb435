/*
 * calls [many | launch | timed | each-second [--begin=TIME]]: what calls of the driver cost as an
 * application sees them: one "NAME NANOSECONDS" row each, the median of ROUNDS rounds; only a
 * launch's with `launch`, which is over in no time; with `timed` that of a launch which the
 * application times, all in all. With `each-second`, how many launches of nothing there were in
 * each of SECONDS seconds, from TIME on (since 1970). bench.sh and tests/gpu/cores.sh run it bare
 * and in slices, in turn, and compare.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_abi.h"

#define CU_HOOK(name, class, parameters, arguments) CUresult name parameters;
#define CU_CALL(name, class, parameters)            CUresult name parameters;
#define CU_SIM(name, class, parameters)             CUresult name parameters;
#include "cuda.def"

#define ROUNDS  21
#define SECONDS 21
#define ROUND   400  /* launches, of nothing, and the stream is waited for */
#define WARM_NS 20e6 /* a quota has seen what a launch costs by then */
#define LIVE    1000
#define MANY    1000000
#define AHEAD   256 /* timed launches on their way; the oldest half of them is waited for at once */

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			  ".visible .entry nop() { ret; }\n";

static CUfunction nop;
static CUstream stream;
static CUdeviceptr live[MANY];
static CUevent first, events[AHEAD];

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void must(CUresult result, const char *what)
{
	const char *name = "?";

	if (result == CUDA_SUCCESS)
		return;
	cuGetErrorName(result, &name);
	fprintf(stderr, "calls: %s: %s\n", what, name);
	exit(1);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* calls times body(i), ROUNDS times; the stream is empty before each round. */
static void measure(const char *name, int calls, CUresult (*body)(int i))
{
	double rounds[ROUNDS];

	for (int round = 0; round < ROUNDS; round++) {
		double start;

		must(cuStreamSynchronize(stream), "cuStreamSynchronize");
		start = now_ns();
		for (int i = 0; i < calls; i++)
			must(body(i), name);
		rounds[round] = (now_ns() - start) / calls;
	}
	qsort(rounds, ROUNDS, sizeof(rounds[0]), by_size);
	printf("%s %.1f\n", name, rounds[ROUNDS / 2]);
}

static CUresult launch(int i)
{
	(void)i;
	return cuLaunchKernel(nop, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}

/* From the last to the first, so that there is one to wait for. */
static CUresult read_half(const CUevent *half)
{
	CUresult result = CUDA_SUCCESS;
	float ms;

	for (int i = AHEAD / 2; !result && i-- > 0;) {
		result = cuEventSynchronize(half[i]);
		if (!result)
			result = cuEventElapsedTime(&ms, first, half[i]);
	}
	return result;
}

static CUresult launch_timed(int i)
{
	CUevent *event = &events[i % AHEAD];
	CUresult result = i >= AHEAD && i % (AHEAD / 2) == 0 ? read_half(event) : CUDA_SUCCESS;

	if (!result)
		result = launch(i);
	return result ? result : cuEventRecord(*event, stream);
}

static CUresult launch_and_wait(int i)
{
	CUresult result = launch(i);

	return result == CUDA_SUCCESS ? cuStreamSynchronize(stream) : result;
}

static CUresult alloc_and_free(size_t bytes)
{
	CUdeviceptr address;
	CUresult result = cuMemAlloc_v2(&address, bytes);

	return result == CUDA_SUCCESS ? cuMemFree_v2(address) : result;
}

static CUresult pair_of_4k(int i)
{
	(void)i;
	return alloc_and_free(4096);
}

static CUresult pair_of_64m(int i)
{
	(void)i;
	return alloc_and_free((size_t)64 << 20);
}

static CUresult replace_one(int i)
{
	CUresult result = cuMemFree_v2(live[i % LIVE]);

	return result == CUDA_SUCCESS ? cuMemAlloc_v2(&live[i % LIVE], 4096) : result;
}

static CUresult replace_one_of_many(int i)
{
	int which = (int)((unsigned)i * 7919u % MANY);
	CUresult result = cuMemFree_v2(live[which]);

	return result == CUDA_SUCCESS ? cuMemAlloc_v2(&live[which], 1024) : result;
}

static CUresult pair_async(int i)
{
	CUdeviceptr address;
	CUresult result = cuMemAllocAsync(&address, (size_t)1 << 20, stream);

	(void)i;
	return result == CUDA_SUCCESS ? cuMemFreeAsync(address, stream) : result;
}

static CUresult wait_for_nothing(int i)
{
	(void)i;
	return cuStreamSynchronize(stream);
}

static CUresult info(int i)
{
	size_t available, total;

	(void)i;
	return cuMemGetInfo_v2(&available, &total);
}

static CUresult look_up(int i)
{
	CUdriverProcAddressQueryResult status;
	void *function;

	(void)i;
	return cuGetProcAddress_v2("cuMemAlloc", &function, 13000, 0, &status);
}

static void start_up(void)
{
	double start = now_ns(), initialised;
	CUcontext context;
	CUmodule module;

	must(cuInit(0), "cuInit");
	initialised = now_ns();
	must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	printf("cuInit %.0f\nprimary_context %.0f\nstart_up %.0f\n", initialised - start,
	       now_ns() - initialised, now_ns() - start);
	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	must(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
	must(cuModuleGetFunction(&nop, module, "nop"), "cuModuleGetFunction");
	must(cuStreamCreate(&stream, 1), "cuStreamCreate");
	for (double warm = now_ns(); now_ns() - warm < WARM_NS;)
		must(launch(0), "cuLaunchKernel");
}

static void measure_timed(void)
{
	must(cuEventCreate(&first, 0), "cuEventCreate");
	must(cuEventRecord(first, stream), "cuEventRecord");
	for (int i = 0; i < AHEAD; i++)
		must(cuEventCreate(&events[i], 0), "cuEventCreate");
	measure("launch_timed", 40 * AHEAD, launch_timed);
}

/* By the clock that `begin_s` is of, as others change the quota by that. */
static double unix_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void count_each_second(double begin_s)
{
	for (int second = 0; second < SECONDS; second++) {
		long launches = 0;

		while (unix_s() < begin_s + second + 1) {
			for (int i = 0; i < ROUND; i++)
				must(launch(i), "cuLaunchKernel");
			must(cuStreamSynchronize(stream), "cuStreamSynchronize");
			launches += unix_s() < begin_s ? 0 : ROUND;
		}
		printf("%s%ld", second ? "," : "windows=", launches);
	}
	printf("\n");
}

int main(int argc, char **argv)
{
	start_up();
	if (argc > 1 && strcmp(argv[1], "timed") == 0) {
		measure_timed();
		return 0;
	}
	if (argc > 1 && strcmp(argv[1], "each-second") == 0) {
		bool begins = argc > 2 && strncmp(argv[2], "--begin=", 8) == 0;

		count_each_second(begins ? strtod(argv[2] + 8, NULL) : unix_s());
		return 0;
	}
	measure("launch", ROUND, launch);
	if (argc > 1 && strcmp(argv[1], "launch") == 0)
		return 0;
	measure("launch_and_wait", 300, launch_and_wait);
	measure("alloc_free_4k", 300, pair_of_4k);
	measure("alloc_free_64m", 30, pair_of_64m);
	for (int i = 0; i < LIVE; i++)
		must(cuMemAlloc_v2(&live[i], 4096), "cuMemAlloc");
	measure("alloc_free_1000_live", 2000, replace_one);
	measure("alloc_free_async_1m", 400, pair_async);
	measure("synchronize_idle", 1000, wait_for_nothing);
	measure("mem_get_info", 200, info);
	measure("get_proc_address", 1000, look_up);
	if (argc > 1) { /* takes some seconds */
		for (int i = LIVE; i < MANY; i++)
			must(cuMemAlloc_v2(&live[i], 1024), "cuMemAlloc");
		measure("alloc_free_1000000_live", 2000, replace_one_of_many);
	}
	return 0;
}
