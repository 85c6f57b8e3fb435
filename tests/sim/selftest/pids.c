/* NVML's pids are those of the pid namespace of who asks; whom that does not have is left out. */
#include "selftest.h"

#include <stdlib.h>
#include <unistd.h>

#include "spaces.h"

static void hold(void *arg)
{
	CUdeviceptr p;

	selftest_context();
	CHECK_OK(cuMemAlloc_v2(&p, *(size_t *)arg));
}

static unsigned listed(nvmlDevice_t device)
{
	nvmlProcessInfo_t infos[8];
	unsigned count = 8;

	CHECK_OK(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos));
	return count;
}

/* In a pid namespace, where it is pid 1. */
static void look_inside(void *arg)
{
	nvmlDevice_t device;

	CHECK_EQUAL(getpid(), 1);
	CHECK_OK(nvmlInit_v2());
	CHECK_OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	CHECK_EQUAL(listed(device), 0);
	hold(arg);
	CHECK_EQUAL(listed(device), 1);
	CHECK_EQUAL(selftest_process_bytes(0, 1), CONTEXT + *(size_t *)arg);
	CHECK_OK(nvmlShutdown()); /* NVML's own file of the machine is closed */
}

static int test(int argc, char **argv)
{
	size_t sizes[3] = {2 * MIB, 4 * MIB, 6 * MIB};
	struct selftest_child children[3];
	nvmlDevice_t device;

	(void)argc, (void)argv;
	selftest_begin(NULL);
	children[0] = selftest_child_start(hold, &sizes[0]);
	for (int i = 1; i < 3; i++) {
		space_begin();
		children[i] = selftest_child_start(look_inside, &sizes[i]);
		space_end();
	}
	CHECK_OK(nvmlInit_v2());
	CHECK_OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	CHECK_EQUAL(listed(device), 3);
	for (int i = 0; i < 3; i++)
		CHECK_EQUAL(selftest_process_bytes(0, children[i].pid), CONTEXT + sizes[i]);
	selftest_child_kill(&children[1]);
	CHECK_EQUAL(selftest_process_bytes(0, children[2].pid), CONTEXT + sizes[2]);
	selftest_child_end(&children[0]);
	selftest_child_end(&children[2]);
	CHECK_EQUAL(selftest_used(0), 0);
	return 0;
}

int main(int argc, char **argv)
{
	return spaces_main(test, argc, argv);
}
