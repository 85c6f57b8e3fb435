/*
 * The simulated NVML: initialisation, lookups, the two memory infos, the three process lists.
 */
#include "selftest.h"

#include <stdlib.h>
#include <string.h>

static void hold(void *argument)
{
	CUdeviceptr p;

	(void)argument;
	selftest_context();
	CHECK_EQ(cuMemAlloc_v2(&p, 10 * MIB), CUDA_SUCCESS);
}

static void init_only(void *argument)
{
	(void)argument;
	CHECK_EQ(cuInit(0), CUDA_SUCCESS);
}

static void test_init(void)
{
	unsigned count;

	CHECK_EQ(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
	CHECK_EQ(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
	CHECK_EQ(nvmlInit_v2(), NVML_SUCCESS);
	CHECK_EQ(nvmlInitWithFlags(0), NVML_SUCCESS);
	CHECK_EQ(nvmlShutdown(), NVML_SUCCESS);
	CHECK_EQ(nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
	CHECK_EQ(count, 3);
	CHECK_EQ(nvmlShutdown(), NVML_SUCCESS);
	CHECK_EQ(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
	CHECK_EQ(nvmlInit(), NVML_SUCCESS);
}

static void test_lookup(void)
{
	nvmlDevice_t a, b;
	char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE], name[64];
	unsigned index;
	int version;

	CHECK_EQ(nvmlDeviceGetHandleByIndex_v2(3, &a), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQ(nvmlDeviceGetHandleByIndex_v2(2, &a), NVML_SUCCESS);
	CHECK_EQ(nvmlDeviceGetUUID(a, uuid, 40), NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK_EQ(nvmlDeviceGetUUID(a, uuid, sizeof uuid), NVML_SUCCESS);
	CHECK(!strcmp(uuid, "GPU-51300000-0000-4000-8000-000000000002"));
	CHECK_EQ(nvmlDeviceGetHandleByUUID(uuid, &b), NVML_SUCCESS);
	CHECK(a == b);
	CHECK_EQ(nvmlDeviceGetHandleByUUID("GPU-5130", &b), NVML_ERROR_NOT_FOUND);
	CHECK_EQ(nvmlDeviceGetIndex(a, &index), NVML_SUCCESS);
	CHECK_EQ(index, 2);
	CHECK_EQ(nvmlDeviceGetName(a, name, sizeof name), NVML_SUCCESS);
	CHECK(!strcmp(name, "vgpu simulated GPU"));
	CHECK_EQ(nvmlDeviceGetName(NULL, name, sizeof name), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQ(nvmlSystemGetCudaDriverVersion_v2(&version), NVML_SUCCESS);
	CHECK_EQ(version, 13000);
}

static void test_memory(nvmlDevice_t device, uint64_t used)
{
	nvmlMemory_t old;
	nvmlMemory_v2_t memory = {.version = 0};

	CHECK_EQ(nvmlDeviceGetMemoryInfo(device, &old), NVML_SUCCESS);
	CHECK_EQ(old.total, 24 * GIB);
	CHECK_EQ(old.used, used);
	CHECK_EQ(old.free, 24 * GIB - used);
	CHECK_EQ(nvmlDeviceGetMemoryInfo_v2(device, &memory), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	memory.version = NVML_MEMORY_V2;
	CHECK_EQ(nvmlDeviceGetMemoryInfo_v2(device, &memory), NVML_SUCCESS);
	CHECK_EQ(memory.total, old.total);
	CHECK_EQ(memory.used, used);
	CHECK_EQ(memory.reserved, 0);
	CHECK_EQ(memory.free, old.free);
}

static void test_list(nvmlDevice_t device, const struct selftest_child *children)
{
	nvmlProcessInfo_t infos[4] = {{.pid = 7}};
	nvmlProcessInfo_v1_t old[2];
	unsigned count = 0;

	CHECK_EQ(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL),
		 NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK_EQ(count, 2);
	count = 1;
	CHECK_EQ(nvmlDeviceGetComputeRunningProcesses_v2(device, &count, infos),
		 NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK_EQ(infos[0].pid, 7);
	CHECK_EQ(nvmlDeviceGetComputeRunningProcesses_v2(device, &count, infos), NVML_SUCCESS);
	CHECK_EQ(count, 2);
	CHECK_EQ(infos[0].pid + infos[1].pid, children[0].pid + children[1].pid);
	CHECK_EQ(infos[0].usedGpuMemory, CONTEXT + 10 * MIB);
	CHECK_EQ(infos[1].gpuInstanceId, UINT32_MAX);
	CHECK_EQ(nvmlDeviceGetComputeRunningProcesses(device, &count, old), NVML_SUCCESS);
	CHECK_EQ(old[1].usedGpuMemory, CONTEXT + 10 * MIB);
	CHECK_EQ(old[0].pid + old[1].pid, children[0].pid + children[1].pid);
	setenv("VGPU_SIM_NVML_PIDS", "foreign", 1);
	CHECK_EQ(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos), NVML_SUCCESS);
	CHECK_EQ(infos[0].pid + infos[1].pid, children[0].pid + children[1].pid + 2000000);
	setenv("VGPU_SIM_NVML_PIDS", "none", 1);
	CHECK_EQ(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos), NVML_SUCCESS);
	CHECK_EQ(count, 0);
	unsetenv("VGPU_SIM_NVML_PIDS");
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
	CHECK_EQ(nvmlDeviceGetHandleByIndex_v2(1, &device), NVML_SUCCESS);
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
	CHECK_EQ(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, &info), NVML_SUCCESS);
	CHECK_EQ(count, 0);
	return 0;
}
