/*
 * See selftest.h.
 */
#include "selftest.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "departure.h"

static char folder[] = "/tmp/vgpu-selftest-XXXXXX";
static pid_t owner; /* of the folder: children must not remove it */

static void folder_remove(void)
{
	char path[sizeof folder + 16];

	if (getpid() != owner)
		return;
	snprintf(path, sizeof path, "%s/state", folder);
	unlink(path);
	snprintf(path, sizeof path, "%s/state.pids", folder);
	unlink(path);
	rmdir(folder);
}

void selftest_begin(const char *gpus)
{
	static const char *const variables[] = {
		"CUDA_VISIBLE_DEVICES", "VGPU_SIM_CONTEXT_MIB", "VGPU_SIM_DRIVER_VERSION",
		"VGPU_SIM_FAULTS",      "VGPU_SIM_GPUS",        "VGPU_SIM_MISSING",
		"VGPU_SIM_MODULE_MIB",  "VGPU_SIM_NVML_PIDS",
	};
	char path[sizeof folder + 16];

	for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
		unsetenv(variables[i]);
	CHECK(mkdtemp(folder));
	owner = getpid();
	atexit(folder_remove);
	snprintf(path, sizeof path, "%s/state", folder);
	setenv("VGPU_SIM_STATE", path, 1);
	if (gpus)
		setenv("VGPU_SIM_GPUS", gpus, 1);
}

bool selftest_is_simulated(void)
{
	return dlsym(RTLD_DEFAULT, "vgpu_sim_peak") != NULL;
}

CUcontext selftest_context(void)
{
	CUcontext context;

	CHECK_OK(cuInit(0));
	CHECK_OK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK_OK(cuCtxSetCurrent(context));
	return context;
}

static nvmlDevice_t handle(unsigned gpu)
{
	nvmlDevice_t device;

	CHECK_OK(nvmlInit_v2());
	CHECK_OK(nvmlDeviceGetHandleByIndex_v2(gpu, &device));
	return device;
}

uint64_t selftest_used(unsigned gpu)
{
	nvmlMemory_t memory;

	CHECK_OK(nvmlDeviceGetMemoryInfo(handle(gpu), &memory));
	CHECK(memory.used <= memory.total);
	CHECK_EQUAL(memory.used + memory.free, memory.total);
	CHECK_OK(nvmlShutdown());
	return memory.used;
}

long long selftest_process_bytes(unsigned gpu, pid_t pid)
{
	nvmlProcessInfo_t infos[64];
	unsigned count = 64;
	long long bytes = -1;

	CHECK_OK(nvmlDeviceGetComputeRunningProcesses_v3(handle(gpu), &count, infos));
	for (unsigned i = 0; i < count; i++) {
		if (infos[i].pid == (unsigned)pid)
			bytes = (long long)infos[i].usedGpuMemory;
	}
	CHECK_OK(nvmlShutdown());
	return bytes;
}

uint64_t selftest_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#define MS         ((uint64_t)1000000)
#define LONGEST_MS (25 * MS)
#define LONGER     5

uint64_t selftest_ms = MS;

int selftest_unhurried(void (*test)(void))
{
	for (;; selftest_ms *= LONGER) {
		int status, departure = departure_prepare();
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (!pid) {
			owner = 0;
			departure_begin(departure);
			test();
			exit(0);
		}
		CHECK_EQUAL(waitpid(pid, &status, 0), pid);
		departure_wait(departure);
		if (!status || selftest_ms >= LONGEST_MS)
			return status != 0;
		fprintf(stderr, "once more, with longer kernels\n");
	}
}

struct selftest_child selftest_child_start(void (*body)(void *argument), void *argument)
{
	int to[2], from[2];
	char byte = 0;

	CHECK(!pipe(to) && !pipe(from));
	int departure = departure_prepare();
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		owner = 0; /* in a pid namespace it may have the same number */
		departure_begin(departure);
		close(to[1]);
		close(from[0]);
		body(argument);
		CHECK_EQUAL(write(from[1], &byte, 1), 1);
		exit(read(to[0], &byte, 1) == 1 ? 0 : 1);
	}
	close(to[0]);
	close(from[1]);
	CHECK_EQUAL(read(from[0], &byte, 1), 1);
	return (struct selftest_child){pid, to[1], from[0], departure};
}

static int child_wait(struct selftest_child *child)
{
	int status;

	CHECK_EQUAL(waitpid(child->pid, &status, 0), child->pid);
	departure_wait(child->departure);
	close(child->to);
	close(child->from);
	return status;
}

void selftest_child_end(struct selftest_child *child)
{
	char byte = 0;

	CHECK_EQUAL(write(child->to, &byte, 1), 1);
	CHECK_EQUAL(child_wait(child), 0);
}

void selftest_child_kill(struct selftest_child *child)
{
	CHECK(!kill(child->pid, SIGKILL));
	child_wait(child);
}

void selftest_child_run(void (*body)(void *argument), void *argument)
{
	struct selftest_child child = selftest_child_start(body, argument);

	selftest_child_end(&child);
}
