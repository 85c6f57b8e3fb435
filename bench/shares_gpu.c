#include "shares_gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "shares_options.h"

#define THREADS            1024 /* of a block: nothing else fits alongside the arithmetic of two */
#define PER_THREAD_STREAMS 2    /* of cuGetProcAddress */

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

CUcontext gpu_context;
CUfunction gpu_kernel;
CUdeviceptr gpu_nowhere;
struct gpu_driver gpu_driver = {cuLaunchKernel, cuGraphLaunch, cuEventRecord, cuStreamSynchronize};

double us_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec * US_PER_S + (double)t.tv_nsec / 1e3;
}

_Noreturn void fail(const char *what, const char *why)
{
	fprintf(stderr, "shares: %s: %s\n", what, why);
	exit(1);
}

void must(CUresult result, const char *what)
{
	const char *name = "an unknown error";

	if (result == CUDA_SUCCESS)
		return;
	cuGetErrorName(result, &name);
	fail(what, name);
}

/* -- the driver -------------------------------------------------------------------------------- */

CUfunction gpu_kernel_load(void)
{
	CUmodule module;
	CUfunction function;

	must(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
	must(cuModuleGetFunction(&function, module, "spin_ns"), "cuModuleGetFunction");
	return function;
}

void gpu_start(void)
{
	must(cuInit(0), "cuInit");
	must(cuDevicePrimaryCtxRetain(&gpu_context, 0), "cuDevicePrimaryCtxRetain");
	must(cuCtxSetCurrent(gpu_context), "cuCtxSetCurrent");
	gpu_kernel = gpu_kernel_load();
	must(cuMemAlloc_v2(&gpu_nowhere, 4096), "cuMemAlloc");
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

void gpu_use_per_thread_streams(void)
{
	*(void **)&gpu_driver.kernel = find_per_thread("cuLaunchKernel");
	*(void **)&gpu_driver.graph = find_per_thread("cuGraphLaunch");
	*(void **)&gpu_driver.record = find_per_thread("cuEventRecord");
	*(void **)&gpu_driver.synchronize = find_per_thread("cuStreamSynchronize");
}

CUresult gpu_launch(CUfunction function, uint64_t iters, CUstream stream)
{
	void *parameters[] = {&iters, &gpu_nowhere};

	return gpu_driver.kernel(function, options.grid, 1, 1, THREADS, 1, 1, 0, stream, parameters,
				 NULL);
}

CUgraphExec gpu_graph_of(CUfunction function, uint64_t iters)
{
	void *parameters[] = {&iters, &gpu_nowhere};
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
	for (int i = 0; i < GPU_GRAPH_KERNELS; i++) {
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

	must(gpu_launch(gpu_kernel, iters, stream),
	     "cuLaunchKernel"); /* the others queue up after it */
	must(cuEventRecord(begin, stream), "cuEventRecord");
	for (int i = 0; i < count; i++)
		must(gpu_launch(gpu_kernel, iters, stream), "cuLaunchKernel");
	must(cuEventRecord(end, stream), "cuEventRecord");
	must(cuEventSynchronize(end), "cuEventSynchronize");
	must(cuEventElapsedTime(&ms, begin, end), "cuEventElapsedTime");
	return (double)ms * 1e3;
}

/* The best of several rounds of kernels of about a millisecond, once the GPU is warm. */
double gpu_calibrate(void)
{
	double best_us = INFINITY, warm_at_us = us_of(CLOCK_MONOTONIC_RAW) + CALIBRATION_WARM_US;
	uint64_t iters = 1000;
	CUstream stream;
	CUevent begin, end;

	must(cuStreamCreate(&stream, GPU_NON_BLOCKING), "cuStreamCreate");
	must(cuEventCreate(&begin, 0), "cuEventCreate");
	must(cuEventCreate(&end, 0), "cuEventCreate");
	while (kernels_us(iters, 1, stream, begin, end) < 700)
		iters *= 2;
	while (us_of(CLOCK_MONOTONIC_RAW) < warm_at_us)
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
