/*
 * The simulated NVML: initialisation, lookups, the two memory infos, the three process lists.
 */
#include "selftest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void hold(void *argument)
{
	CUdeviceptr p;

	(void)argument;
	selftest_context();
	CHECK_OK(cuMemAlloc_v2(&p, 10 * MIB));
}

static void init_only(void *argument)
{
	(void)argument;
	CHECK_OK(cuInit(0));
}

static void test_init(void)
{
	unsigned count;

	CHECK_EQUAL(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
	CHECK_EQUAL(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
	CHECK_OK(nvmlInit_v2());
	CHECK_OK(nvmlInitWithFlags(0));
	CHECK_OK(nvmlShutdown());
	CHECK_OK(nvmlDeviceGetCount_v2(&count));
	CHECK_EQUAL(count, 3);
	CHECK_OK(nvmlShutdown());
	CHECK_EQUAL(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
	CHECK_OK(nvmlInit());
}

static void test_lookup(void)
{
	nvmlDevice_t a, b;
	char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE], name[64];
	unsigned index;
	int version;

	CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(3, &a), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_OK(nvmlDeviceGetHandleByIndex_v2(2, &a));
	CHECK_EQUAL(nvmlDeviceGetUUID(a, uuid, 40), NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK_OK(nvmlDeviceGetUUID(a, uuid, sizeof uuid));
	CHECK(!strcmp(uuid, "GPU-51300000-0000-4000-8000-000000000002"));
	CHECK_OK(nvmlDeviceGetHandleByUUID(uuid, &b));
	CHECK(a == b);
	CHECK_EQUAL(nvmlDeviceGetHandleByUUID("GPU-5130", &b), NVML_ERROR_NOT_FOUND);
	CHECK_OK(nvmlDeviceGetIndex(a, &index));
	CHECK_EQUAL(index, 2);
	CHECK_OK(nvmlDeviceGetName(a, name, sizeof name));
	CHECK(!strcmp(name, "vgpu simulated GPU"));
	CHECK_EQUAL(nvmlDeviceGetName(NULL, name, sizeof name), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_OK(nvmlSystemGetCudaDriverVersion_v2(&version));
	CHECK_EQUAL(version, 13000);
}

static void test_memory(nvmlDevice_t device, uint64_t used)
{
	nvmlMemory_t old;
	nvmlMemory_v2_t memory = {.version = 0};

	CHECK_OK(nvmlDeviceGetMemoryInfo(device, &old));
	CHECK_EQUAL(old.total, 24 * GIB);
	CHECK_EQUAL(old.used, used);
	CHECK_EQUAL(old.free, 24 * GIB - used);
	CHECK_EQUAL(nvmlDeviceGetMemoryInfo_v2(device, &memory),
		    NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	memory.version = NVML_MEMORY_V2;
	CHECK_OK(nvmlDeviceGetMemoryInfo_v2(device, &memory));
	CHECK_EQUAL(memory.total, old.total);
	CHECK_EQUAL(memory.used, used);
	CHECK_EQUAL(memory.reserved, 0);
	CHECK_EQUAL(memory.free, old.free);
}

static void test_list(nvmlDevice_t device, const struct selftest_child *children)
{
	nvmlProcessInfo_t infos[4] = {{.pid = 7}};
	nvmlProcessInfo_v1_t old[2];
	unsigned count = 0;

	CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL),
		    NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK_EQUAL(count, 2);
	count = 1;
	CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v2(device, &count, infos),
		    NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK_EQUAL(infos[0].pid, 7);
	CHECK_OK(nvmlDeviceGetComputeRunningProcesses_v2(device, &count, infos));
	CHECK_EQUAL(count, 2);
	CHECK_EQUAL(infos[0].pid + infos[1].pid, children[0].pid + children[1].pid);
	CHECK_EQUAL(infos[0].usedGpuMemory, CONTEXT + 10 * MIB);
	CHECK_EQUAL(infos[1].gpuInstanceId, UINT32_MAX);
	CHECK_OK(nvmlDeviceGetComputeRunningProcesses(device, &count, old));
	CHECK_EQUAL(old[1].usedGpuMemory, CONTEXT + 10 * MIB);
	CHECK_EQUAL(old[0].pid + old[1].pid, children[0].pid + children[1].pid);
	setenv("VGPU_SIM_NVML_PIDS", "foreign", 1);
	CHECK_OK(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos));
	CHECK_EQUAL(infos[0].pid + infos[1].pid, children[0].pid + children[1].pid + 2000000);
	setenv("VGPU_SIM_NVML_PIDS", "none", 1);
	CHECK_OK(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos));
	CHECK_EQUAL(count, 0);
	unsetenv("VGPU_SIM_NVML_PIDS");
}

static void add_line(const char *path, const char *line)
{
	FILE *file = fopen(path, "a");

	CHECK(file && fputs(line, file) >= 0 && fclose(file) == 0);
}

/* Each line of the file is an event once, if its GPU is registered. */
static void test_events(nvmlDevice_t device)
{
	char path[] = "/tmp/vgpu-xids-XXXXXX";
	int file = mkstemp(path);
	nvmlEventData_t event;
	nvmlEventSet_t set;

	CHECK(file >= 0 && close(file) == 0);
	setenv("VGPU_SIM_NVML_XIDS", path, 1);
	CHECK_OK(nvmlEventSetCreate(&set));
	CHECK_OK(nvmlDeviceRegisterEvents(device, nvmlEventTypeXidCriticalError, set));
	CHECK_EQUAL(nvmlEventSetWait_v2(set, &event, 0), NVML_ERROR_TIMEOUT);
	add_line(path, "0 13\n1 79\n");
	CHECK_OK(nvmlEventSetWait_v2(set, &event, 0));
	CHECK(event.device == device);
	CHECK_EQUAL(event.eventData, 79);
	CHECK_EQUAL(nvmlEventSetWait_v2(set, &event, 0), NVML_ERROR_TIMEOUT);
	CHECK_OK(nvmlEventSetFree(set));
	unlink(path);
	unsetenv("VGPU_SIM_NVML_XIDS");
}

int main(void)
{
	nvmlDevice_t device;
	nvmlProcessInfo_t info;
	unsigned count = 1;

	selftest_begin("80G,24G,16G");
	setenv("CUDA_VISIBLE_DEVICES", "1", 1); /* means nothing to NVML */
	test_init();
	test_lookup();
	CHECK_OK(nvmlDeviceGetHandleByIndex_v2(1, &device));
	test_events(device);
	test_memory(device, 0);
	struct selftest_child children[3] = {
		selftest_child_start(hold, NULL),
		selftest_child_start(hold, NULL),
		selftest_child_start(init_only, NULL),
	};
	test_memory(device, 2 * (CONTEXT + FIRST + 10 * MIB));
	test_list(device, children);
	for (int i = 0; i < 3; i++)
		selftest_child_end(&children[i]);
	test_memory(device, 0);
	CHECK_OK(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, &info));
	CHECK_EQUAL(count, 0);
	return 0;
}
