/*
 * Several threads of several processes take memory of all kinds and give it back, at random, while
 * each call is slow, before the driver does anything and after it has done everything
 * (VGPU_SIM_DELAY). At no moment the device holds more than the quota, and in the end the ledger
 * has what the device has.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "parked_fixture.h"

#define PROCESSES      3
#define THREADS        3
#define ROUNDS         60
#define THINGS_AT_ONCE 4 /* of a thread */

/* -- kinds of memory --------------------------------------------------------------------------- */

struct thing {
	const struct kind *kind;
	CUdeviceptr address;
	CUmemGenericAllocationHandle handle, object;
	CUarray array;
	CUexternalMemory external;
	int file;
	uint64_t bytes;
};

struct kind {
	CUresult (*take)(struct thing *thing);
	void (*give)(struct thing *thing);
};

static CUresult take_block(struct thing *thing)
{
	return cuMemAlloc_v2(&thing->address, thing->bytes);
}

static void give_block(struct thing *thing)
{
	give(thing->address);
}

static CUresult take_array(struct thing *thing)
{
	const CUDA_ARRAY3D_DESCRIPTOR flat = {1024, thing->bytes / 4096, 0, CU_AD_FORMAT_FLOAT, 1,
					      0};

	return cuArray3DCreate_v2(&thing->array, &flat);
}

static void give_array(struct thing *thing)
{
	CHECK_OK(cuArrayDestroy(thing->array));
}

static CUresult take_handle(struct thing *thing)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = POSIX,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	return cuMemCreate(&thing->handle, thing->bytes, &prop, 0);
}

static void give_handle(struct thing *thing)
{
	CHECK_OK(cuMemRelease(thing->handle));
}

/* Only the mapping is left of it, at last. */
static CUresult take_mapping(struct thing *thing)
{
	CUresult result = take_handle(thing);

	if (result != CUDA_SUCCESS)
		return result;
	CHECK_OK(cuMemAddressReserve(&thing->address, thing->bytes, 0, 0, 0));
	CHECK_OK(cuMemMap(thing->address, thing->bytes, 0, thing->handle, 0));
	give_handle(thing);
	CHECK_OK(cuMemRetainAllocationHandle(&thing->handle, (void *)(uintptr_t)thing->address));
	give_handle(thing);
	return CUDA_SUCCESS;
}

static void give_mapping(struct thing *thing)
{
	CHECK_OK(cuMemUnmap(thing->address, thing->bytes));
}

/* Only the binding is left of it, and then only the object. */
static CUresult take_binding(struct thing *thing)
{
	CUmulticastObjectProp prop = {.numDevices = 1, .size = thing->bytes};
	CUresult result = take_handle(thing);

	if (result != CUDA_SUCCESS)
		return result;
	CHECK_OK(cuMulticastCreate(&thing->object, &prop));
	CHECK_OK(cuMulticastAddDevice(thing->object, 0));
	CHECK_OK(cuMulticastBindMem(thing->object, 0, thing->handle, 0, thing->bytes, 0));
	give_handle(thing);
	return CUDA_SUCCESS;
}

static void give_binding(struct thing *thing)
{
	CHECK_OK(cuMulticastUnbind(thing->object, 0, 0, thing->bytes));
	CHECK_OK(cuMemRelease(thing->object));
}

/* Only a descriptor is left of it. */
static CUresult take_file(struct thing *thing)
{
	CUresult result = take_handle(thing);

	if (result != CUDA_SUCCESS)
		return result;
	CHECK_OK(cuMemExportToShareableHandle(&thing->file, thing->handle, POSIX, 0));
	give_handle(thing);
	return CUDA_SUCCESS;
}

static void give_file(struct thing *thing)
{
	CHECK(close(thing->file) == 0);
}

static CUresult take_external(struct thing *thing)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
						 .size = thing->bytes};
	int fd = memfd_create("memory of another API", MFD_CLOEXEC);
	CUresult result;

	CHECK(fd >= 0);
	memcpy(desc.handle, &fd, sizeof(fd));
	result = cuImportExternalMemory(&thing->external, &desc);
	if (result != CUDA_SUCCESS)
		close(fd);
	return result;
}

static void give_external(struct thing *thing)
{
	CHECK_OK(cuDestroyExternalMemory(thing->external));
}

static const struct kind kinds[] = {
	{take_block, give_block},       {take_array, give_array},     {take_handle, give_handle},
	{take_mapping, give_mapping},   {take_binding, give_binding}, {take_file, give_file},
	{take_external, give_external},
};

#define KINDS (sizeof(kinds) / sizeof(*kinds))

/* -- a thread ---------------------------------------------------------------------------------- */

static CUcontext context;

struct work {
	pthread_t thread;
	unsigned seed, taken, refused;
};

static void take_one(struct work *work, struct thing *thing)
{
	const struct kind *kind = &kinds[(unsigned)rand_r(&work->seed) % KINDS];
	CUresult result;

	thing->bytes = (1 + (unsigned)rand_r(&work->seed) % 16) * GRANULE;
	result = kind->take(thing);
	CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
	thing->kind = result == CUDA_SUCCESS ? kind : NULL;
	work->taken += result == CUDA_SUCCESS;
	work->refused += result != CUDA_SUCCESS;
}

static void *work_at_random(void *arg)
{
	struct thing things[THINGS_AT_ONCE] = {{.kind = NULL}};
	struct work *work = arg;

	CHECK_OK(cuCtxSetCurrent(context));
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct thing *thing = &things[(unsigned)rand_r(&work->seed) % THINGS_AT_ONCE];

		if (thing->kind)
			thing->kind->give(thing);
		take_one(work, thing);
	}
	for (unsigned i = 0; i < THINGS_AT_ONCE; i++)
		if (things[i].kind)
			things[i].kind->give(&things[i]);
	return NULL;
}

/* Returns how many things were taken, and in the upper half how many were refused. */
static uint64_t work_in_threads(uint64_t seed)
{
	struct work works[THREADS];
	uint64_t sum = 0;

	CHECK_OK(cuCtxGetCurrent(&context));
	for (unsigned i = 0; i < THREADS; i++) {
		works[i] = (struct work){.seed = (unsigned)seed * THREADS + i};
		CHECK(pthread_create(&works[i].thread, NULL, work_at_random, &works[i]) == 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		CHECK(pthread_join(works[i].thread, NULL) == 0);
		sum += works[i].taken + ((uint64_t)works[i].refused << 32);
	}
	return sum;
}

static uint64_t settle(uint64_t unused)
{
	parked_compare();
	return unused;
}

/* -- the scene --------------------------------------------------------------------------------- */

/* The quota has room for contexts, and for a part of what the threads want. */
#define ROOM  (200 * MIB)
#define QUOTA (PROCESSES * CHARGE + ROOM)

static void delay_calls(unsigned us)
{
	static const char *const calls[] = {
		"cuMemAlloc_v2",
		"cuMemFree_v2",
		"cuArray3DCreate_v2",
		"cuArrayDestroy",
		"cuMemCreate",
		"cuMemRelease",
		"cuMemMap",
		"cuMemUnmap",
		"cuMulticastBindMem",
		"cuMulticastUnbind",
		"cuImportExternalMemory",
		"cuDestroyExternalMemory",
		"cuMemExportToShareableHandle",
		"cuMemRetainAllocationHandle",
	};
	char rules[4096];
	size_t length = 0;

	for (unsigned i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		length += (size_t)snprintf(rules + length, sizeof(rules) - length,
					   "%s%s=%u,%s:done=%u", i ? "," : "", calls[i], us,
					   calls[i], us);
	CHECK(length < sizeof(rules));
	env_set("VGPU_SIM_DELAY", rules);
}

static void work_in_processes(unsigned us)
{
	struct member members[PROCESSES];
	uint64_t device, taken = 0, refused = 0;
	char limit[32];

	begin();
	snprintf(limit, sizeof(limit), "%llu", (unsigned long long)QUOTA);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	delay_calls(us);
	for (unsigned i = 0; i < PROCESSES; i++)
		members[i] = actor();
	device = outside_used(0);
	CHECK_EQUAL(ledger_used(0), PROCESSES * CHARGE);
	outside_peak_begin(0);
	for (unsigned i = 0; i < PROCESSES; i++) {
		tell(members[i].wire, (uintptr_t)work_in_threads);
		tell(members[i].wire, i + 1);
	}
	for (unsigned i = 0; i < PROCESSES; i++) {
		uint64_t sum = hear(members[i].wire);

		taken += sum & UINT32_MAX;
		refused += sum >> 32;
	}
	CHECK_AT_MOST(outside_peak(0), device + ROOM);
	CHECK_AT_MOST(1, refused);
	CHECK_AT_MOST(PROCESSES * THREADS * ROUNDS / 4, taken);
	for (unsigned i = 0; i < PROCESSES; i++)
		order(&members[i], settle, 0);
	CHECK_EQUAL(outside_used(0), device);
	CHECK_EQUAL(ledger_used(0), PROCESSES * CHARGE);
	for (unsigned i = 0; i < PROCESSES; i++)
		dismiss(&members[i]);
}

TEST(short_delays)
{
	work_in_processes(50);
}

TEST(long_delays)
{
	work_in_processes(1000);
}
