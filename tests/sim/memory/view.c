/* What the tenant is told: by CUDA and by NVML, in every process the same, its slice as the GPU. */
#include "cuda_api.h"

#include <unistd.h>

#include "nvml_abi.h"

#define NVML_HOOK(name, parameters, arguments) nvmlReturn_t name parameters;
#define NVML_CALL(name, parameters)            nvmlReturn_t name parameters;
#include "nvml.def"

TEST(by_cuda)
{
	size_t available = UNTOUCHED, total = UNTOUCHED;
	unsigned total_v1 = UNTOUCHED, available_v1 = UNTOUCHED;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	cuda_start(0);
	take(100 * MIB);
	CHECK_EQUAL(total_of(0), 2 * GIB);
	CHECK_OK(cuDeviceTotalMem(&total_v1, 0));
	CHECK_EQUAL(total_v1, 2 * GIB);
	CHECK_OK(cuMemGetInfo_v2(&available, &total));
	CHECK_EQUAL(total, 2 * GIB);
	CHECK_EQUAL(available, 2 * GIB - ledger_used(0));
	CHECK_EQUAL(ledger_used(0), CONTEXT + HIDDEN + 100 * MIB);
	CHECK_OK(cuMemGetInfo(&available_v1, &total_v1));
	CHECK_EQUAL(total_v1, total);
	CHECK_EQUAL(available_v1, available);
}

TEST(one_output)
{
	size_t available = UNTOUCHED, total = UNTOUCHED;
	unsigned available_v1 = UNTOUCHED, total_v1 = UNTOUCHED;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	cuda_start(0);
	take(1);
	CHECK_OK(cuMemGetInfo_v2(NULL, &total));
	CHECK_EQUAL(total, GIB);
	CHECK_OK(cuMemGetInfo_v2(&available, NULL));
	CHECK_EQUAL(available, GIB - ledger_used(0));
	CHECK_OK(cuMemGetInfo(NULL, &total_v1));
	CHECK_EQUAL(total_v1, GIB);
	CHECK_OK(cuMemGetInfo(&available_v1, NULL));
	CHECK_EQUAL(available_v1, available);
}

/* What the driver rejects is rejected by it, and nothing is written. */
TEST(rejected)
{
	size_t available = UNTOUCHED, total = UNTOUCHED;
	nvmlMemory_v2_t memory = {.version = 7, .total = UNTOUCHED};
	nvmlDevice_t device;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	CHECK_OK(cuInit(0));
	CHECK_EQUAL(cuMemGetInfo_v2(&available, &total), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQUAL(available, UNTOUCHED);
	CHECK_EQUAL(total, UNTOUCHED);
	CHECK_EQUAL(cuDeviceTotalMem_v2(&total, 7), CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQUAL(cuDeviceTotalMem_v2(&total, -1), CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQUAL(cuDeviceTotalMem_v2(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(total, UNTOUCHED);
	CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
	CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
	CHECK_EQUAL(nvmlDeviceGetMemoryInfo_v2(device, &memory),
		    NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	CHECK_EQUAL(memory.total, UNTOUCHED);
	CHECK_EQUAL(nvmlDeviceGetMemoryInfo(device, NULL), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQUAL(nvmlDeviceGetMemoryInfo(NULL, (nvmlMemory_t *)&memory),
		    NVML_ERROR_INVALID_ARGUMENT);
}

/* NVML in the process that uses CUDA, of which it must say the same. */
TEST(by_nvml_beside_cuda)
{
	nvmlMemory_v2_t v2 = {.version = NVML_MEMORY_V2};
	nvmlMemory_t v1;
	nvmlDevice_t device;
	size_t available, total;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	cuda_start(0);
	take(300 * MIB);
	CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
	CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
	CHECK_EQUAL(nvmlDeviceGetMemoryInfo(device, &v1), NVML_SUCCESS);
	CHECK_EQUAL(nvmlDeviceGetMemoryInfo_v2(device, &v2), NVML_SUCCESS);
	CHECK_OK(cuMemGetInfo_v2(&available, &total));
	CHECK_EQUAL(v1.total, total);
	CHECK_EQUAL(v1.free, available);
	CHECK_EQUAL(v1.used, total - available);
	CHECK_EQUAL(v2.total, total);
	CHECK_EQUAL(v2.free, available);
	CHECK_EQUAL(v2.used + v2.reserved, total - available);
}

static void assert_inside(uint64_t total, uint64_t used)
{
	for (int version = 1; version <= 2; version++) {
		struct figures seen = inside(0, version);

		CHECK_EQUAL(seen.result, NVML_SUCCESS);
		CHECK_EQUAL(seen.total, total);
		CHECK_EQUAL(seen.used, used);
		CHECK_EQUAL(seen.free, total - used);
	}
}

static void holder(int wire)
{
	size_t available, total;

	cuda_start(0);
	take(hear(wire));
	tell(wire, ledger_used(0));
	while (hear(wire)) {
		CHECK_OK(cuMemGetInfo_v2(&available, &total));
		CHECK_EQUAL(total, 3 * GIB);
		tell(wire, total - available);
	}
}

/* A monitor that starts before anyone, and sees each come and go; two tenants that see the same. */
TEST(by_several)
{
	struct member a, b;
	uint64_t used;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "3g");
	assert_inside(3 * GIB, 0);
	a = member_start(holder);
	CHECK_EQUAL(member_ask(&a, 100 * MIB), CONTEXT + HIDDEN + 100 * MIB);
	assert_inside(3 * GIB, CONTEXT + HIDDEN + 100 * MIB);
	b = member_start(holder);
	used = member_ask(&b, 500 * MIB);
	CHECK_EQUAL(used, 2 * (CONTEXT + HIDDEN) + 600 * MIB);
	tell(a.wire, 1);
	tell(b.wire, 1);
	CHECK_EQUAL(hear(a.wire), used);
	CHECK_EQUAL(hear(b.wire), used);
	assert_inside(3 * GIB, used);
	member_kill(&b);
	assert_inside(3 * GIB, CONTEXT + HIDDEN + 100 * MIB);
	member_finish(&a);
	assert_inside(3 * GIB, 0);
}

/* What the dead had is free again, to CUDA as to NVML, though nobody was refused meanwhile. */
TEST(after_a_death)
{
	struct member a, b;
	uint64_t used;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "3g");
	a = member_start(holder);
	used = member_ask(&a, 100 * MIB);
	b = member_start(holder);
	member_ask(&b, 500 * MIB);
	member_kill(&b);
	CHECK_AT_MOST(outside_used(0), used);
	CHECK_EQUAL(member_ask(&a, 1), used);
	member_finish(&a);
}

/* A limit that is more than there is changes nothing that is shown. */
TEST(above_physical)
{
	size_t available, total;
	struct figures seen;

	env_set("VGPU_SIM_GPUS", "1x4G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "8g");
	cuda_start(0);
	take(MIB);
	CHECK_EQUAL(total_of(0), 4 * GIB);
	CHECK_OK(cuMemGetInfo_v2(&available, &total));
	CHECK_EQUAL(total, 4 * GIB);
	CHECK_AT_MOST(available, 4 * GIB - outside_used(0));
	for (int version = 1; version <= 2; version++) {
		seen = inside(0, version);
		CHECK_EQUAL(seen.total, 4 * GIB);
		CHECK_EQUAL(seen.used + seen.free, 4 * GIB);
	}
}

/* The rest of the device is another tenant's: less is free than the slice would allow. */
static void other_tenant(int wire)
{
	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path("other.cache"));
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	cuda_start(0);
	take(2 * GIB);
	say_ready(wire);
}

TEST(neighbour)
{
	struct member other;
	size_t available, total;

	env_set("VGPU_SIM_GPUS", "1x4G");
	other = member_begin(other_tenant);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "3g");
	cuda_start(0);
	take(MIB);
	CHECK_OK(cuMemGetInfo_v2(&available, &total));
	CHECK_EQUAL(total, 3 * GIB);
	CHECK_EQUAL(available, 4 * GIB - outside_used(0));
	member_finish(&other);
	CHECK_OK(cuMemGetInfo_v2(&available, &total));
	CHECK_EQUAL(available, 3 * GIB - ledger_used(0));
}

TEST(one_gpu_limited)
{
	env_set("VGPU_SIM_GPUS", "2x8G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_0", "1g");
	cuda_start(0);
	CHECK_EQUAL(total_of(0), GIB);
	CHECK_EQUAL(total_of(1), 8 * GIB);
	refused(GIB);
	cuda_start(1);
	take(5 * GIB);
	CHECK_EQUAL(inside(0, 1).total, GIB);
	CHECK_EQUAL(inside(1, 1).total, 8 * GIB);
	CHECK_EQUAL(inside(1, 1).used, outside_used(1)); /* as the driver says it */
}

/* CUDA's device `device` is held to `quota`, and it is the machine's `gpu`. */
static void assert_held(CUdevice device, unsigned gpu, uint64_t quota)
{
	static CUdeviceptr pieces[4096];

	CHECK_EQUAL(total_of(device), quota);
	cuda_start(device);
	fill(pieces, 4096, GRANULE);
	CHECK_AT_MOST(outside_used(gpu), quota + GRANULE);
	CHECK_AT_MOST(quota / 100 * 99, outside_used(gpu));
	CHECK_EQUAL(inside(gpu, 1).total, quota);
	CHECK_EQUAL(ledger()->hami.limit[ledger_index(gpu)], quota);
	CHECK_OK(cuDevicePrimaryCtxReset_v2(device));
}

TEST(renumbered)
{
	env_set("VGPU_SIM_GPUS", "2x8G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_0", "1g");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_1", "2g");
	env_set("CUDA_VISIBLE_DEVICES", "1,0");
	CHECK_OK(cuInit(0));
	assert_held(0, 1, 2 * GIB);
	assert_held(1, 0, GIB);
}

/* Hiding the limited GPU does not hand its limit to another one. */
TEST(one_hidden)
{
	env_set("VGPU_SIM_GPUS", "3x8G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_0", "1g");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_1", "2g");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_2", "3g");
	env_set("CUDA_VISIBLE_DEVICES", "2");
	CHECK_OK(cuInit(0));
	assert_held(0, 2, 3 * GIB);
}

/* The i-th limit is that of the i-th UUID listed. */
TEST(listed_by_uuid)
{
	char list[256];

	snprintf(list, sizeof(list), "%s,%s", gpu_uuid(2), gpu_uuid(0));
	env_set("VGPU_SIM_GPUS", "3x8G");
	env_set("NVIDIA_VISIBLE_DEVICES", list);
	env_set("CUDA_DEVICE_MEMORY_LIMIT_0", "1g");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_1", "2g");
	CHECK_OK(cuInit(0));
	assert_held(2, 2, GIB);
	assert_held(0, 0, 2 * GIB);
}

/* Two processes of a slice that number the GPUs differently count the same ones together. */
static void other_order(int wire)
{
	env_set("CUDA_VISIBLE_DEVICES", "1,0");
	cuda_start(0);
	take(GIB);
	say_ready(wire);
}

TEST(two_orders)
{
	struct member other;

	env_set("VGPU_SIM_GPUS", "2x8G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "3g");
	other = member_begin(other_order);
	cuda_start(1);
	refused(GIB); /* of what the other has not: 3 GiB less 1 GiB and two contexts */
	take(900 * MIB);
	CHECK_AT_MOST(outside_used(1), 3 * GIB);
	CHECK_EQUAL(ledger_used(1), 2 * (CONTEXT + HIDDEN) + GIB + 900 * MIB);
	CHECK_EQUAL(ledger_used(0), 0);
	member_finish(&other);
}
