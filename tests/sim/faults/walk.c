#include "walk.h"

#include <string.h>
#include <unistd.h>

#include "nvml_abi.h"

#define NVML_HOOK(name, parameters, arguments) nvmlReturn_t name parameters;
#define NVML_CALL(name, parameters)            nvmlReturn_t name parameters;
#include "nvml.def"

#define HANDLE_WORDS (sizeof(CUipcMemHandle) / sizeof(uint64_t))

void tell_handle(int wire, const CUipcMemHandle *handle)
{
	uint64_t words[HANDLE_WORDS];

	memcpy(words, handle, sizeof(words));
	for (unsigned i = 0; i < HANDLE_WORDS; i++)
		tell(wire, words[i]);
}

CUipcMemHandle hear_handle(int wire)
{
	uint64_t words[HANDLE_WORDS];
	CUipcMemHandle handle;

	for (unsigned i = 0; i < HANDLE_WORDS; i++)
		words[i] = hear(wire);
	memcpy(&handle, words, sizeof(handle));
	return handle;
}

void partner(int wire)
{
	CUdeviceptr own = 0, opened = 0;
	CUipcMemHandle handle;
	uint64_t order;

	cuda_start(0);
	give(take(1));
	tell(wire, 1);
	while ((order = hear(wire)) != ORDER_END) {
		if (own && (order == ORDER_FREE || order == ORDER_CLEAN)) {
			give(own);
			own = 0;
		}
		if (opened && (order == ORDER_CLOSE || order == ORDER_CLEAN)) {
			CHECK_OK(cuIpcCloseMemHandle(opened));
			opened = 0;
		}
		if (order == ORDER_OPEN) {
			handle = hear_handle(wire);
			CHECK_OK(cuIpcOpenMemHandle_v2(&opened, handle, 1));
		}
		if (order == ORDER_CLEAN)
			give(take(SHARED)); /* and a dead holder's lock is taken over */
		tell(wire, 1);
		if (order == ORDER_EXPORT) {
			own = take(SHARED);
			CHECK_OK(cuIpcGetMemHandle(&handle, own));
			tell_handle(wire, &handle);
		}
	}
}

TEST_ROLE(holder)
{
	(void)argc;
	(void)argv;
	env_set("CUDA_VISIBLE_DEVICES", "0");
	cuda_start(0);
}
/* -- the walker -------------------------------------------------------------------------------- */

static uint64_t ask(int wire, enum order order)
{
	tell(wire, order);
	return hear(wire);
}

/* As nvidia-smi in a slice: an onlooker, and somebody has died. */
static void look(void)
{
	nvmlMemory_t memory;
	nvmlDevice_t device;

	CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
	CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
	CHECK_EQUAL(nvmlDeviceGetMemoryInfo(device, &memory), NVML_SUCCESS);
	CHECK_EQUAL(memory.total, QUOTA);
}

/* The partner's memory, opened twice. */
static void import(int wire)
{
	CUdeviceptr first, second;
	CUipcMemHandle handle;

	ask(wire, ORDER_EXPORT);
	handle = hear_handle(wire);
	CHECK_OK(cuIpcOpenMemHandle_v2(&first, handle, 1));
	CHECK_OK(cuIpcOpenMemHandle_v2(&second, handle, 1));
	CHECK_OK(cuIpcCloseMemHandle(first));
	ask(wire, ORDER_FREE); /* it is charged to the walker now */
	CHECK_OK(cuIpcCloseMemHandle(second));
}

/* Its own, which it frees while the partner has it open. */
static void export(int wire)
{
	CUdeviceptr own = take(SHARED);
	CUipcMemHandle handle;

	CHECK_OK(cuIpcGetMemHandle(&handle, own));
	tell(wire, ORDER_OPEN);
	tell_handle(wire, &handle);
	hear(wire);
	give(own);
	ask(wire, ORDER_CLOSE);
}

/* Its own, which it imports itself. */
static void import_own(void)
{
	const CUmemAllocationHandleType posix = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = posix,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle own, opened;
	int fd;

	CHECK_OK(cuMemCreate(&own, SHARED, &prop, 0));
	CHECK_OK(cuMemExportToShareableHandle(&fd, own, posix, 0));
	CHECK_OK(cuMemImportFromShareableHandle(&opened, (void *)(intptr_t)fd, posix));
	CHECK(close(fd) == 0);
	CHECK_OK(cuMemRelease(own));
	CHECK_OK(cuMemRelease(opened));
}

/* What is kept free for it, to the last: others may have the rest. */
static void fill_and_empty(void)
{
	static CUdeviceptr pieces[1024];
	unsigned count = fill(pieces, 1024, 32 * MIB);

	CHECK(count >= 8);
	while (count)
		give(pieces[--count]);
}

/* The slot is emptied by then, as handlers of quick_exit run in the reverse order. */
static void go_on_at_exit(void)
{
	give(take(SHARED));
}

TEST_ROLE(walk)
{
	int wire = atoi(argv[0]);

	(void)argc;
	CHECK_EQUAL(at_quick_exit(go_on_at_exit), 0);
	look();
	cuda_start(0);
	give(take(1));
	ask(wire, ORDER_STARTED);
	ask(wire, ORDER_DEAD_HOLDER);
	give(take(SHARED));
	ask(wire, ORDER_SLOW_HOLDER);
	give(take(SHARED));
	import(wire);
	export(wire);
	import_own();
	fill_and_empty();
	quick_exit(0);
}
