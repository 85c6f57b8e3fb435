/* Each function that launches, by each way to it, passes the gate. */
#include "launch.h"

#include <dlfcn.h>
#include <time.h>

TEST(suspended)
{
	launch_start("4g");
	held(launchers, LAUNCHERS, suspend_self, resume_self);
	CHECK_OK(launch());
}

TEST(blocked)
{
	launch_start("4g");
	held(launchers, LAUNCHERS, block, unblock);
	CHECK_EQUAL(PEEK(words->recent_kernel), 2);
}

/* The process that has launched nothing yet is held all the same. */
TEST(suspended_before)
{
	struct attempt attempt;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	CHECK_OK(cuInit(0));
	words_map();
	block();
	context = cuda_start(0);
	spin = spin_load();
	attempt_begin(&attempt, &launchers[2], launchers[2].linked, NULL);
	sleep_ms(STAY_MS);
	attempt_waits(&attempt);
	unblock();
	attempt_ends(&attempt, CUDA_SUCCESS);
}

/* What the monitor counted down is 2 again after any launch, and the time is shown. */
TEST(shown)
{
	launch_start("4g");
	for (size_t w = 0; w < WAYS; w++)
		for (size_t i = 0; i < LAUNCHERS; i++) {
			POKE(words->recent_kernel, (int32_t)(i % 2));
			CHECK_OK(launchers[i].call(ways[w](&launchers[i]), stream));
			CHECK_EQUAL(PEEK(words->recent_kernel), 2);
		}
	sleep_ms(300);
	POKE(words->last_kernel_time, 0);
	POKE(words->recent_kernel, 1);
	CHECK_OK(launch());
	CHECK_AT_MOST(time(NULL) - 2, PEEK(words->last_kernel_time));
	CHECK_AT_MOST(PEEK(words->last_kernel_time), time(NULL));
}

/* Without a monitor, however many launches there are between waits for them. */
TEST(time_shown)
{
	launch_start("4g");
	for (unsigned i = 0; i < 1000; i++)
		CHECK_OK(launch());
	for (unsigned round = 0; round < 3; round++) {
		CHECK_OK(round == 0   ? cuStreamSynchronize(stream)
			 : round == 1 ? cuCtxSynchronize()
				      : cuStreamSynchronize_ptsz(stream));
		sleep_ms(300);
		POKE(words->last_kernel_time, 0);
		CHECK_OK(launch());
		CHECK_AT_MOST(time(NULL) - 2, PEEK(words->last_kernel_time));
		for (unsigned i = 0; i < 1000; i++)
			CHECK_OK(launch());
	}
}

/* The driver hears what it would have heard, and says what it says. */
TEST(refused_by_driver)
{
	CUlaunchConfig config = {1, 1, 1, 2048, 1, 1, 0, NULL, NULL, 0};

	launch_start("4g");
	for (unsigned round = 0; round < 100; round++) {
		CHECK_EQUAL(cuLaunchKernel(nop, 1, 1, 1, 1, 1, 2000, 0, stream, NULL, NULL),
			    CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
			    CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(cuLaunchKernelEx(NULL, nop, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(cuLaunchKernelEx(&config, nop, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(cuLaunchCooperativeKernelMultiDevice(NULL, 1, 0),
			    CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(cuLaunchGrid(nop, 0, 1), CUDA_ERROR_INVALID_VALUE);
		POKE(words->recent_kernel, 1); /* the way round */
	}
}

/* All arguments arrive: a kernel lasts as long as its parameter says, by whatever way. */
TEST(arguments_arrive)
{
	uint64_t ns = 20 * MS, began;
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0};
	void *parameters[] = {&ns};

	launch_start("4g");
	config.hStream = stream;
	for (int32_t recent = 1; recent <= 2; recent++) { /* round, and straight */
		began = now_ms();
		POKE(words->recent_kernel, recent);
		CHECK_OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
		POKE(words->recent_kernel, recent);
		CHECK_OK(cuLaunchCooperativeKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters));
		POKE(words->recent_kernel, recent);
		CHECK_OK(cuLaunchKernelEx(&config, spin, parameters, NULL));
		CHECK_OK(cuStreamSynchronize(stream));
		CHECK_AT_MOST(59, now_ms() - began);
	}
}

/* No slice: the driver's own functions, and those that are linked go straight to them. */
TEST(inert)
{
	Dl_info where;

	launch_start(NULL);
	for (unsigned round = 0; round < 200; round++)
		for (size_t i = 0; i < LAUNCHERS; i++)
			CHECK_OK(launchers[i].call(launchers[i].linked, stream));
	for (size_t i = 0; i < LAUNCHERS; i++) {
		CHECK(dladdr(ways[2](&launchers[i]), &where));
		CHECK(strstr(where.dli_fname, "libcuda"));
	}
	CHECK(access(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), F_OK) != 0);
}

/* Before cuInit, and with a driver that says so. */
TEST(not_attached)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	for (size_t i = 0; i < 3; i++)
		CHECK_EQUAL(cuLaunch(NULL), CUDA_ERROR_NOT_INITIALIZED);
	launch_start("4g");
	CHECK_OK(launch());
	CHECK(ledger_slot(getpid()) >= 0);
}
