/* The devices that NVML shows: the slice's, in NVML's order and numbered from 0; others are not
 * there, by whatever name they are asked for. */
#include "nvml_api.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY ((nvmlDevice_t)(uintptr_t)UNTOUCHED)

/* -- what a list of the machine's GPUs looks like ------------------------------------------------
 */

static bool is_uuid_of(nvmlDevice_t device, unsigned gpu)
{
	char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE], expected[VGPU_UUID_LEN];

	/* Not gpu_uuid, which writes where other threads read. */
	snprintf(expected, sizeof(expected), "GPU-51300000-0000-4000-8000-%012x", gpu);
	CHECK_OK(nvmlDeviceGetUUID(device, uuid, sizeof(uuid)));
	return !strcmp(uuid, expected);
}

/* By index, in both versions, there are these and no more. */
static void assert_numbered(const unsigned *gpus, unsigned count)
{
	nvmlDevice_t device, device_v1;
	unsigned seen = UNTOUCHED, seen_v1 = UNTOUCHED, index = UNTOUCHED, minor = UNTOUCHED;

	CHECK_OK(nvmlDeviceGetCount_v2(&seen));
	CHECK_OK(nvmlDeviceGetCount(&seen_v1));
	CHECK_EQUAL(seen, count);
	CHECK_EQUAL(seen_v1, count);
	for (unsigned i = 0; i < count; i++) {
		CHECK_OK(nvmlDeviceGetHandleByIndex_v2(i, &device));
		CHECK_OK(nvmlDeviceGetHandleByIndex(i, &device_v1));
		CHECK(device == device_v1);
		CHECK(is_uuid_of(device, gpus[i]));
		CHECK_OK(nvmlDeviceGetIndex(device, &index));
		CHECK_EQUAL(index, i);
		CHECK_OK(nvmlDeviceGetMinorNumber(device, &minor));
		CHECK_EQUAL(minor, 3 - gpus[i]); /* the simulated machine's, of 4 GPUs */
	}
	device = device_v1 = NOBODY;
	CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(count, &device), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQUAL(nvmlDeviceGetHandleByIndex(count, &device_v1), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(~0u, &device), NVML_ERROR_INVALID_ARGUMENT);
	CHECK(device == NOBODY && device_v1 == NOBODY);
}

/* A lookup of that GPU by some name gave this. */
static void assert_found(nvmlReturn_t result, nvmlDevice_t device, unsigned gpu, bool there)
{
	CHECK_EQUAL(result, there ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND);
	CHECK(there ? is_uuid_of(device, gpu) : device == NOBODY);
}

static void assert_by_uuid(unsigned gpu, bool there)
{
	nvmlUUID_t uuid = {.version = NVML_UUID_V1, .type = NVML_UUID_TYPE_ASCII};
	nvmlDevice_t device = NOBODY;
	nvmlReturn_t result = nvmlDeviceGetHandleByUUID(gpu_uuid(gpu), &device);

	assert_found(result, device, gpu, there);
	strcpy(uuid.value.str, gpu_uuid(gpu));
	device = NOBODY;
	result = nvmlDeviceGetHandleByUUIDV(&uuid, &device);
	assert_found(result, device, gpu, there);
	uuid.type = NVML_UUID_TYPE_BINARY;
	memset(&uuid.value, 0, sizeof(uuid.value));
	memcpy(uuid.value.bytes, "\x51\x30\0\0\0\0\x40\0\x80", 9);
	uuid.value.bytes[15] = (unsigned char)gpu;
	device = NOBODY;
	result = nvmlDeviceGetHandleByUUIDV(&uuid, &device);
	assert_found(result, device, gpu, there);
	uuid.version++;
	device = NOBODY;
	CHECK_EQUAL(nvmlDeviceGetHandleByUUIDV(&uuid, &device),
		    NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	CHECK(device == NOBODY);
}

static void assert_by_place(unsigned gpu, bool there)
{
	nvmlDevice_t device = NOBODY;
	nvmlReturn_t result;
	char name[64];

	snprintf(name, sizeof(name), "132000%02u", gpu);
	result = nvmlDeviceGetHandleBySerial(name, &device);
	assert_found(result, device, gpu, there);
	for (unsigned way = 0; way < 3; way++) {
		if (way == 2)
			snprintf(name, sizeof(name), "%x:00.0", gpu + 1);
		else
			snprintf(name, sizeof(name), way ? "%04x:%02x:00" : "%08X:%02X:00.0", 0u,
				 gpu + 1);
		device = NOBODY;
		result = nvmlDeviceGetHandleByPciBusId(name, &device);
		assert_found(result, device, gpu, there);
		device = NOBODY;
		result = nvmlDeviceGetHandleByPciBusId_v2(name, &device);
		assert_found(result, device, gpu, there);
	}
}

static bool is_among(unsigned gpu, const unsigned *gpus, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (gpus[i] == gpu)
			return true;
	return false;
}

/* All the others are near the first, and all are near a CPU. */
static void assert_topology(const unsigned *gpus, unsigned count)
{
	nvmlDevice_t devices[8], first = device_of(gpus[0]);
	unsigned seen = 0;

	CHECK_OK(nvmlSystemGetTopologyGpuSet(0, &seen, NULL));
	CHECK_EQUAL(seen, count);
	CHECK_OK(nvmlSystemGetTopologyGpuSet(0, &seen, devices));
	CHECK_EQUAL(seen, count);
	for (unsigned i = 0; i < count; i++)
		CHECK(is_uuid_of(devices[i], gpus[i]));
	seen = 0;
	CHECK_OK(nvmlDeviceGetTopologyNearestGpus(first, NVML_TOPOLOGY_SYSTEM, &seen, NULL));
	CHECK_EQUAL(seen, count - 1);
	if (count < 2)
		return;
	memset(devices, 0, sizeof(devices));
	seen = 1;
	CHECK_OK(nvmlDeviceGetTopologyNearestGpus(first, NVML_TOPOLOGY_SYSTEM, &seen, devices));
	CHECK_EQUAL(seen, 1);
	CHECK(is_uuid_of(devices[0], gpus[1]) && !devices[1]);
	seen = 8;
	CHECK_OK(nvmlDeviceGetTopologyNearestGpus(first, NVML_TOPOLOGY_SINGLE, &seen, devices));
	CHECK_EQUAL(seen, 0);
}

/* NVML shows these of the machine's four, in this order, whichever way it is asked. */
static void assert_shown(const unsigned *gpus, unsigned count)
{
	assert_numbered(gpus, count);
	for (unsigned gpu = 0; gpu < 4; gpu++) {
		bool there = is_among(gpu, gpus, count);

		assert_by_uuid(gpu, there);
		assert_by_place(gpu, there);
	}
	assert_topology(gpus, count);
}

static const unsigned all[] = {0, 1, 2, 3}, odd[] = {1, 3};

static void machine_of_four(void)
{
	env_set("VGPU_SIM_GPUS", "4x8G");
	CHECK_OK(nvmlInit_v2());
}

static void policy_of_odd(void)
{
	policy_add(gpu_uuid(3)); /* the order is NVML's all the same */
	policy_add(gpu_uuid(1));
	machine_of_four();
}

/* -- scenes --------------------------------------------------------------------------------------
 */

TEST(by_policy)
{
	nvmlMemory_t memory;
	nvmlDevice_t device;

	policy_of_odd();
	assert_shown(odd, 2);
	CHECK_OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	CHECK_OK(nvmlDeviceGetMemoryInfo(device, &memory));
	CHECK_EQUAL(memory.total, 2 * GIB);
}

TEST(by_environment)
{
	char list[256];

	snprintf(list, sizeof(list), "%s,%s", gpu_uuid(3), gpu_uuid(1));
	env_set("NVIDIA_VISIBLE_DEVICES", list);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	machine_of_four();
	assert_shown(odd, 2);
}

/* The environment does not lift a policy, nor does it narrow one. */
TEST(policy_before_environment)
{
	env_set("NVIDIA_VISIBLE_DEVICES", gpu_uuid(0));
	policy_of_odd();
	assert_shown(odd, 2);
}

TEST(whole_machine)
{
	env_set("NVIDIA_VISIBLE_DEVICES", "all");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	machine_of_four();
	assert_shown(all, 4);
}

TEST(not_by_cuda)
{
	env_set("CUDA_VISIBLE_DEVICES", "3");
	policy_of_odd();
	assert_shown(odd, 2);
}

TEST(no_slice)
{
	env_set("NVIDIA_VISIBLE_DEVICES", gpu_uuid(2)); /* is not enough to be a slice */
	machine_of_four();
	assert_shown(all, 4);
}

/* A GPU of the policy that this machine has not. */
TEST(none_there)
{
	nvmlDevice_t device = NOBODY;
	unsigned count = UNTOUCHED;

	policy_add(gpu_uuid(9));
	machine_of_four();
	assert_numbered(NULL, 0);
	for (unsigned gpu = 0; gpu < 4; gpu++)
		assert_by_uuid(gpu, false);
	count = 0;
	CHECK_OK(nvmlSystemGetTopologyGpuSet(0, &count, &device));
	CHECK_EQUAL(count, 0);
}

/* What NVML refuses, it refuses with a slice as without. */
TEST(rejected)
{
	nvmlDevice_t device = NOBODY;
	unsigned number = UNTOUCHED;

	policy_add(gpu_uuid(1));
	env_set("VGPU_SIM_GPUS", "4x8G");
	CHECK_EQUAL(nvmlDeviceGetCount_v2(&number), NVML_ERROR_UNINITIALIZED);
	CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_ERROR_UNINITIALIZED);
	CHECK_EQUAL(nvmlDeviceGetHandleByUUID(gpu_uuid(1), &device), NVML_ERROR_UNINITIALIZED);
	CHECK_OK(nvmlInit_v2());
	CHECK_EQUAL(nvmlDeviceGetCount(NULL), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQUAL(nvmlDeviceGetCount_v2(NULL), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, NULL), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQUAL(nvmlDeviceGetHandleByUUID(NULL, &device), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQUAL(nvmlDeviceGetHandleByUUID(gpu_uuid(1), NULL), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQUAL(nvmlDeviceGetHandleByUUIDV(NULL, &device), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQUAL(nvmlDeviceGetHandleBySerial("nonsense", &device), NVML_ERROR_NOT_FOUND);
	CHECK_EQUAL(nvmlDeviceGetHandleByPciBusId("ff:0.0", &device), NVML_ERROR_NOT_FOUND);
	CHECK_EQUAL(nvmlDeviceGetIndex(NULL, &number), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQUAL(nvmlDeviceGetIndex(device_of(1), NULL), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQUAL(nvmlSystemGetTopologyGpuSet(0, NULL, &device), NVML_ERROR_INVALID_ARGUMENT);
	number = 2;
	CHECK_EQUAL(
		nvmlDeviceGetTopologyNearestGpus(device_of(1), NVML_TOPOLOGY_SYSTEM, &number, NULL),
		NVML_ERROR_INVALID_ARGUMENT);
	CHECK(device == NOBODY);
	CHECK_OK(nvmlShutdown());
	CHECK_EQUAL(nvmlDeviceGetCount_v2(&number), NVML_ERROR_UNINITIALIZED);
	CHECK_OK(nvmlInit_v2());
	assert_shown(odd, 1);
}

/* A GPU that does not answer once is not gone for good. */
TEST(one_stumbles)
{
	unsigned count = 0;

	env_set("VGPU_SIM_FAULTS", "nvmlDeviceGetUUID@3=15");
	policy_of_odd();
	CHECK_OK(nvmlDeviceGetCount_v2(&count));
	CHECK_EQUAL(count, 1);
	assert_numbered(odd, 2);
}

/* What NVML itself cannot tell is not told. */
TEST(count_fails)
{
	nvmlDevice_t device = NOBODY;
	unsigned count = UNTOUCHED;

	env_set("VGPU_SIM_FAULTS", "nvmlDeviceGetCount_v2=999");
	policy_of_odd();
	CHECK_EQUAL(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNKNOWN);
	CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_ERROR_UNKNOWN);
	CHECK(device == NOBODY);
	CHECK_EQUAL(count, UNTOUCHED);
	CHECK_OK(nvmlDeviceGetCount(&count)); /* which counts for itself */
	CHECK_EQUAL(count, 2);
}

/* -- MIG -----------------------------------------------------------------------------------------
 */

#define INSTANCE "MIG-51300000-0000-4000-8000-000000000022" /* the second one of GPU 2 */
#define SIBLING  "MIG-51300000-0000-4000-8000-000000000021"

static const unsigned cut[] = {2};

/* Its GPU is shown, and it is found by its UUID; the other one on that GPU is not. */
TEST(instance_in_policy)
{
	nvmlDevice_t device = NOBODY, instance;
	unsigned index = UNTOUCHED, is = 0;

	env_set("VGPU_SIM_NVML_MIG", "2");
	policy_add(INSTANCE);
	machine_of_four();
	assert_numbered(cut, 1);
	assert_by_uuid(2, true);
	assert_by_uuid(1, false);
	CHECK_OK(nvmlDeviceGetHandleByUUID(INSTANCE, &instance));
	CHECK_OK(nvmlDeviceIsMigDeviceHandle(instance, &is));
	CHECK_EQUAL(is, 1);
	CHECK_OK(nvmlDeviceGetIndex(instance, &index));
	CHECK_EQUAL(index, 1); /* on its GPU */
	CHECK_EQUAL(nvmlDeviceGetHandleByUUID(SIBLING, &device), NVML_ERROR_NOT_FOUND);
	CHECK(device == NOBODY);
	CHECK_OK(nvmlDeviceGetMigDeviceHandleByIndex(device_of(2), 1, &device));
	CHECK(device == instance);
	CHECK_OK(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance, &device));
	CHECK(device == device_of(2));
}

/* Who has the GPU has all that it is cut into. */
TEST(gpu_with_instances_in_policy)
{
	nvmlDevice_t device = NOBODY;

	env_set("VGPU_SIM_NVML_MIG", "2");
	policy_add(gpu_uuid(2));
	machine_of_four();
	assert_numbered(cut, 1);
	CHECK_OK(nvmlDeviceGetHandleByUUID(INSTANCE, &device));
	CHECK_OK(nvmlDeviceGetHandleByUUID(SIBLING, &device));
}

/* -- processes and threads -----------------------------------------------------------------------
 */

TEST(after_fork)
{
	pid_t child;

	policy_of_odd();
	assert_shown(odd, 2);
	child = fork();
	if (child == 0) {
		assert_shown(odd, 2);
		_exit(0);
	}
	expect_ended(child);
}

#define THREADS 8

static bool go; /* atomic */

static void *ask(void *unused)
{
	while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
		;
	for (unsigned i = 0; i < 50; i++)
		assert_numbered(odd, 2);
	return unused;
}

static struct threads start_asking(void)
{
	struct threads threads = threads_start(THREADS, ask);

	__atomic_store_n(&go, true, __ATOMIC_RELEASE);
	return threads;
}

/* The first questions of the process come all at once. */
TEST(threads_at_once)
{
	policy_of_odd();
	threads_join(start_asking());
}

/* Not amid the very first question: a child forked while a thread is in the loader, which that
 * takes, cannot use the loader, with us or without. */
TEST(forks_amid_threads)
{
	struct threads threads;

	policy_of_odd();
	assert_numbered(odd, 2);
	threads = start_asking();
	for (unsigned round = 0; round < 10; round++) {
		pid_t child = fork();

		if (child == 0) {
			alarm(WAIT_S);
			assert_numbered(odd, 2);
			_exit(0);
		}
		expect_ended(child);
	}
	threads_join(threads);
}
