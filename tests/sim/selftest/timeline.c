/*
 * Modules, launches, streams and events: what was queued is done when it should be, also behind
 * another process's work, and launching is cheap.
 */
#include "selftest.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define MS selftest_ms

static const char ptx[] = "// a comment with .entry in it\n"
			  ".version 7.0\n.target sm_70\n.address_size 64\n"
			  ".visible .entry spin_ns(.param .u64 ns) { ret; }\n"
			  "/* .entry hidden() */\n"
			  ".visible .entry\n nop() { ret; }\n";

static CUfunction spin, nop;

static void load(void)
{
	CUmodule module;
	CUfunction none = NULL;

	CHECK_EQUAL(cuModuleLoadData(&module, "\177ELF"), CUDA_ERROR_INVALID_IMAGE);
	CHECK_OK(cuModuleLoadDataEx(&module, ptx, 0, NULL, NULL));
	CHECK_OK(cuModuleGetFunction(&nop, module, "nop"));
	CHECK_OK(cuModuleUnload(module));
	CHECK_EQUAL(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
	CHECK_OK(cuModuleLoadData(&module, ptx));
	CHECK_OK(cuModuleGetFunction(&spin, module, "spin_ns"));
	CHECK_OK(cuModuleGetFunction(&nop, module, "nop"));
	CHECK_EQUAL(cuModuleGetFunction(&none, module, "hidden"), CUDA_ERROR_NOT_FOUND);
	CHECK_EQUAL(cuModuleGetFunction(&none, module, "in"), CUDA_ERROR_NOT_FOUND);
	CHECK(!none);
}

static void launch(CUstream stream, uint64_t ns)
{
	void *parameters[] = {&ns};

	CHECK_OK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
}

static CUstream stream_new(unsigned flags)
{
	CUstream stream;

	CHECK_OK(cuStreamCreate(&stream, flags));
	return stream;
}

/* It took that long, and not much longer. */
static void took(uint64_t since, uint64_t ns)
{
	uint64_t elapsed = selftest_now_ns() - since;

	CHECK(elapsed >= ns);
	CHECK(elapsed < ns + 500 * MS);
}

static void test_stream(void)
{
	CUstream stream = stream_new(1), idle = stream_new(1);
	uint64_t start = selftest_now_ns();

	launch(stream, 30 * MS);
	launch(stream, 30 * MS);
	CHECK_EQUAL(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	CHECK_OK(cuStreamQuery(idle));
	CHECK_OK(cuStreamSynchronize(stream));
	took(start, 60 * MS);
	CHECK_OK(cuStreamQuery(stream));
	start = selftest_now_ns();
	launch(stream, 20 * MS); /* one GPU, one kernel at a time */
	launch(idle, 20 * MS);
	CHECK_OK(cuStreamSynchronize(idle));
	took(start, 40 * MS);
	launch(stream, 20 * MS);
	CHECK_OK(cuCtxSynchronize());
	took(start, 60 * MS);
	CHECK_OK(cuStreamDestroy_v2(stream));
	CHECK_EQUAL(cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(cuStreamDestroy_v2(NULL), CUDA_ERROR_INVALID_HANDLE);
}

static void test_default_streams(void)
{
	CUstream blocking = stream_new(0), free_one = stream_new(1);
	uint64_t ns = 30 * MS, start = selftest_now_ns();
	void *parameters[] = {&ns};
	unsigned char byte = 0;
	CUdeviceptr p;

	launch(free_one, ns);
	CHECK_OK(cuStreamQuery(NULL)); /* does not wait for that one */
	launch(blocking, ns);
	CHECK_EQUAL(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	CHECK_OK(cuStreamQuery_ptsz(NULL));
	CHECK_OK(cuStreamSynchronize(NULL));
	took(start, 2 * ns);
	start = selftest_now_ns();
	CHECK_OK(cuLaunchKernel_ptsz(spin, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	CHECK_EQUAL(cuStreamQuery_ptsz(NULL), CUDA_ERROR_NOT_READY);
	CHECK_EQUAL(cuStreamQuery((CUstream)2), CUDA_ERROR_NOT_READY);
	CHECK_OK(cuStreamQuery(blocking));
	CHECK_OK(cuStreamSynchronize_ptsz(NULL));
	took(start, ns);
	CHECK_OK(cuMemAlloc_v2(&p, 1));
	start = selftest_now_ns();
	launch(NULL, ns);
	CHECK_OK(cuMemsetD8_v2(p, 7, 1));
	CHECK_OK(cuMemcpyDtoH_v2(&byte, p, 1)); /* in order */
	CHECK_EQUAL(byte, 7);
	took(start, ns);
	CHECK_OK(cuMemFree_v2(p));
}

static void test_launches(void)
{
	CUstream stream = stream_new(1), other = stream_new(1);
	uint64_t ns = 10 * MS, start = selftest_now_ns();
	void *parameters[] = {&ns};
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, NULL, 0};
	CUDA_LAUNCH_PARAMS list[] = {{spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters},
				     {spin, 1, 1, 1, 1, 1, 1, 0, other, parameters}};

	CHECK_OK(cuLaunchKernelEx(&config, spin, parameters, NULL));
	CHECK_OK(cuLaunchKernelEx_ptsz(&config, spin, parameters, NULL));
	CHECK_EQUAL(cuLaunchKernelEx(NULL, spin, parameters, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuLaunchCooperativeKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters));
	CHECK_OK(cuLaunchCooperativeKernel_ptsz(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters));
	CHECK_OK(cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
	CHECK_OK(cuStreamSynchronize(stream));
	CHECK_OK(cuStreamSynchronize(other));
	took(start, 6 * ns);
	list[1].hStream = NULL;
	CHECK_EQUAL(cuLaunchCooperativeKernelMultiDevice(list, 2, 0), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(cuLaunchCooperativeKernelMultiDevice(list, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuStreamSynchronize(stream));

	CHECK_EQUAL(cuLaunch(spin), CUDA_ERROR_INVALID_VALUE); /* of which shape? */
	CHECK_EQUAL(cuFuncSetBlockShape(spin, 2048, 1, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuFuncSetBlockShape(spin, 32, 1, 1));
	CHECK_OK(cuParamSetSize(spin, sizeof(ns)));
	CHECK_OK(cuParamSetv(spin, 0, &ns, sizeof(ns)));
	start = selftest_now_ns();
	CHECK_OK(cuLaunch(spin));
	CHECK_OK(cuLaunchGrid(spin, 2, 2));
	CHECK_OK(cuLaunchGridAsync(spin, 2, 2, stream));
	CHECK_EQUAL(cuLaunchGrid(spin, 0, 2), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuLaunchGrid(NULL, 1, 1), CUDA_ERROR_INVALID_HANDLE);
	CHECK_OK(cuCtxSynchronize());
	took(start, 3 * ns);
	CHECK_OK(cuStreamDestroy_v2(stream));
	CHECK_OK(cuStreamDestroy_v2(other));
}

static void test_events(void)
{
	CUstream stream = stream_new(1);
	CUevent a, b, untimed;
	float ms = -1;

	CHECK_OK(cuEventCreate(&a, 0));
	CHECK_OK(cuEventCreate(&b, 0));
	CHECK_OK(cuEventCreate(&untimed, 2));
	CHECK_OK(cuEventQuery(a));
	CHECK_EQUAL(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_INVALID_HANDLE);
	CHECK_OK(cuEventRecord(a, stream));
	launch(stream, 40 * MS);
	CHECK_OK(cuEventRecord(b, stream));
	CHECK_OK(cuEventRecord(untimed, stream));
	CHECK_EQUAL(cuEventQuery(b), CUDA_ERROR_NOT_READY);
	CHECK_EQUAL(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_NOT_READY);
	CHECK_OK(cuEventSynchronize(b));
	CHECK_OK(cuEventQuery(b));
	CHECK_OK(cuEventElapsedTime(&ms, a, b));
	CHECK((double)ms * 1e6 >= 40.0 * (double)MS && (double)ms * 1e6 < 60.0 * (double)MS);
	CHECK_EQUAL(cuEventElapsedTime_v2(&ms, a, untimed), CUDA_ERROR_INVALID_HANDLE);
	CHECK_OK(cuEventDestroy_v2(a));
	CHECK_EQUAL(cuEventDestroy_v2(a), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(cuEventRecord(a, stream), CUDA_ERROR_INVALID_HANDLE);
}

/* Streams and events end with their context; their handles are refused, not followed. */
static void test_end(void)
{
	CUcontext context;
	CUevent event;

	CHECK_OK(cuCtxCreate_v2(&context, 0, 0));
	CUstream stream = stream_new(0);
	CHECK_OK(cuEventCreate(&event, 0));
	CHECK_OK(cuCtxDestroy_v2(context));
	CHECK_EQUAL(cuEventDestroy_v2(event), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
}

static void test_launch(void)
{
	uint64_t ns = 5 * MS, size = sizeof ns, start = selftest_now_ns();
	void *extra[] = {(void *)1, &ns, (void *)2, &size, NULL};

	CHECK_OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	CHECK_OK(cuStreamSynchronize(NULL));
	took(start, ns);
	CHECK_EQUAL(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuLaunchKernel(nop, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuLaunchKernel(nop, 1, 1, 1, 1024, 2, 1, 0, NULL, NULL, NULL),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
		    CUDA_ERROR_INVALID_HANDLE);
}

static uint64_t ran_ns(void)
{
	struct timespec ran;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
	return (uint64_t)ran.tv_sec * 1000000000 + (uint64_t)ran.tv_nsec;
}

/* Generously measured: a sanitizer or a busy machine must not fail it, a system call each should.
 */
static void test_cheap(void)
{
	enum { LAUNCHES = 100000 };
	CUstream stream = stream_new(1);
	uint64_t best = UINT64_MAX;

	for (int round = 0; round < 5; round++) {
		uint64_t start = ran_ns();

		for (int i = 0; i < LAUNCHES; i++)
			cuLaunchKernel(nop, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
		uint64_t each = (ran_ns() - start) / LAUNCHES;
		best = each < best ? each : best;
	}
	printf("a launch takes %llu ns\n", (unsigned long long)best);
	CHECK(best < 400);
}

static void begin(void)
{
	selftest_context();
	load();
}

static void alone(void *argument)
{
	(void)argument;
	begin();
	test_stream();
	test_default_streams();
	test_launches();
	test_events();
	test_end();
	test_launch();
	test_cheap();
}

static void occupies(void *argument)
{
	begin();
	launch(NULL, *(uint64_t *)argument);
}

static void queues_behind(void *argument)
{
	uint64_t start = selftest_now_ns();

	begin();
	launch(NULL, 10 * MS);
	CHECK_OK(cuCtxSynchronize());
	took(start, *(uint64_t *)argument);
}

static void test_processes(void)
{
	uint64_t ns = 150 * MS, rest = 100 * MS, long_time = 20000 * MS, nothing = 0;
	struct selftest_child first;

	CHECK_OK(nvmlInit_v2()); /* who comes when nobody is there begins afresh */
	first = selftest_child_start(occupies, &ns);
	selftest_child_run(queues_behind, &rest);
	selftest_child_end(&first);
	/* What the dead have queued goes with them. */
	first = selftest_child_start(occupies, &long_time);
	selftest_child_kill(&first);
	selftest_child_run(queues_behind, &nothing);
}

static void test_all(void)
{
	selftest_child_run(alone, NULL);
	test_processes();
}

int main(void)
{
	selftest_begin(NULL);
	return selftest_unhurried(test_all);
}
