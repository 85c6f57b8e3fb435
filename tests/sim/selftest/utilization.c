/*
 * Utilization: what part of the last second the GPU was at work, for whom.
 */
#include "selftest.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const char ptx[] = ".version 7.0\n.target sm_70\n"
			  ".visible .entry spin_ns(.param .u64 ns) { ret; }\n";
static const uint64_t ms = 1000000;

static void sleep_ms(long milliseconds)
{
	struct timespec span = {milliseconds / 1000, milliseconds % 1000 * (long)ms};

	while (nanosleep(&span, &span))
		;
}

static CUfunction spin_get(void)
{
	CUfunction spin;
	CUmodule module;

	CHECK_OK(cuModuleLoadData(&module, ptx));
	CHECK_OK(cuModuleGetFunction(&spin, module, "spin_ns"));
	return spin;
}

static void launch(CUfunction spin, uint64_t ns)
{
	void *parameters[] = {&ns};

	CHECK_OK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
}

static unsigned gpu_pct(unsigned index)
{
	nvmlUtilization_t utilization;
	nvmlDevice_t device;

	CHECK_OK(nvmlDeviceGetHandleByIndex_v2(index, &device));
	CHECK_OK(nvmlDeviceGetUtilizationRates(device, &utilization));
	return utilization.gpu;
}

static unsigned process_pct(pid_t pid)
{
	nvmlProcessUtilizationSample_t samples[4];
	unsigned count = 4;
	nvmlDevice_t device;

	CHECK_OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	CHECK_OK(nvmlDeviceGetProcessUtilization(device, samples, &count, 0));
	for (unsigned i = 0; i < count; i++) {
		if (samples[i].pid == (unsigned)pid)
			return samples[i].smUtil;
	}
	return 1000;
}

static void near(unsigned actual, unsigned expected)
{
	CHECK(actual <= 100 && actual + 8 >= expected && actual <= expected + 8);
}

/* 300 ms of work by a child, which sees its end. */
static void work(void *argument)
{
	(void)argument;
	selftest_context();
	launch(spin_get(), 300 * ms);
	CHECK_OK(cuCtxSynchronize());
}

int main(void)
{
	selftest_begin("2x8G");
	CHECK_OK(nvmlInit_v2());
	struct selftest_child child = selftest_child_start(work, NULL);
	sleep_ms(70); /* the period in which its work ended is over */
	near(process_pct(child.pid), 30);
	near(gpu_pct(0), 30);
	selftest_context();
	CUfunction spin = spin_get();
	for (int i = 0; i < 20; i++)
		launch(spin, 10 * ms);
	CHECK_OK(cuCtxSynchronize());
	sleep_ms(70);
	near(process_pct(getpid()), 20);
	CHECK_EQUAL(gpu_pct(1), 0);
	launch(spin, 2000 * ms);
	sleep_ms(1100);
	near(gpu_pct(0), 100);
	near(process_pct(getpid()), 100);
	CHECK_EQUAL(process_pct(child.pid), 0);
	sleep_ms(2000);
	CHECK_EQUAL(gpu_pct(0), 0);
	selftest_child_end(&child);
	return 0;
}
