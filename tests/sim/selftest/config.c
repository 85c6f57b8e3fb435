/*
 * The environment's say, and who may use a state file: for other GPUs only when nobody living uses
 * it.
 */
#include "selftest.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void runs(void *gpus)
{
	setenv("VGPU_SIM_GPUS", gpus, 1);
	CHECK_OK(cuInit(0));
}

/* The driver says on stderr what is wrong; that is not this test's failure. */
static void refused(void *gpus)
{
	CHECK(freopen("/dev/null", "w", stderr));
	setenv("VGPU_SIM_GPUS", gpus, 1);
	if (cuInit(0) != CUDA_ERROR_SYSTEM_NOT_READY ||
	    nvmlInit_v2() != NVML_ERROR_DRIVER_NOT_LOADED)
		_exit(1);
}

static void versions(void *argument)
{
	int version;
	CUcontext context;

	(void)argument;
	setenv("VGPU_SIM_DRIVER_VERSION", "11020", 1);
	setenv("VGPU_SIM_CONTEXT_MIB", "100", 1);
	CHECK_OK(cuDriverGetVersion(&version));
	CHECK_EQUAL(version, 11020);
	CHECK_OK(cuInit(0));
	CHECK_OK(cuCtxCreate_v2(&context, 0, 0));
	CHECK_EQUAL(selftest_process_bytes(0, getpid()), 100 * MIB);
	CHECK_EQUAL(selftest_used(0), 100 * MIB + FIRST);
	CHECK_OK(cuCtxCreate_v2(&context, 0, 0));
	CHECK_EQUAL(selftest_used(0), 200 * MIB + FIRST + 6 * MIB);
}

/* A file that is none, and one that a crash has left half made. */
static void test_rubbish(void)
{
	FILE *file = fopen(getenv("VGPU_SIM_STATE"), "w");

	CHECK(file && fputs("rubbish", file) >= 0 && !fclose(file));
	selftest_child_run(runs, (void *)(uintptr_t) "24G");
}

int main(void)
{
	static char *const wrong[] = {"80",    "G",  "0x80G", "80G,",      "80G 24G",
				      "17x1G", "0G", "-1G",   "99999999T", "2x"};

	selftest_begin(NULL);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		selftest_child_run(refused, wrong[i]);
	struct selftest_child holder = selftest_child_start(runs, (void *)(uintptr_t) "2x80G");
	selftest_child_run(runs, (void *)(uintptr_t) "80G,80G");
	selftest_child_run(refused, (void *)(uintptr_t) "24G");
	selftest_child_kill(&holder);
	selftest_child_run(runs, (void *)(uintptr_t) "24G");
	selftest_child_run(versions, NULL);
	test_rubbish();
	return 0;
}
