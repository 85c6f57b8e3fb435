/* What the driver takes on its own account: code, and stacks. Green contexts: own_green.c. */
#include "own_acts.h"

#include <string.h>
#include <sys/socket.h>

/* -- code ------------------------------------------------------------------------------------- */

/* clang-format off */
#define LOADED_AND_UNLOADED                                                               \
	{LOAD(A, 0), 20, 0}, {LOAD(B, 1), 40, 0}, {LOAD(C, 2), 60, 0}, {LOAD(D, 3), 80, 0},       \
		{LOAD(E, 4), 100, 0}, {LOAD(F, 5), 120, 0}, {REST, 120, 0},               \
		{UNLOAD(A), UNCHECKED}, {REST, 100, 0}, {UNLOAD(B), UNCHECKED}, {REST, 80, 0},    \
		{UNLOAD(C), UNCHECKED}, {REST, 60, 0}, {UNLOAD(D), UNCHECKED}, {REST, 40, 0},     \
		{UNLOAD(E), UNCHECKED}, {REST, 20, 0}, {UNLOAD(F), UNCHECKED}, {REST, 0, 0}

/* A slice of 700 MiB has room for 172 MiB. Each loader has its round. */
static const struct own_row codes[] = {
	{"loaded_and_unloaded", "1g", .acts = {LOADED_AND_UNLOADED}},
	/* What does not fit is unloaded again. Nothing of it stays, and others have the room. */
	{"too_big", "700m", .rounds = LOADERS, .acts = {
		{LEAVE(A, 18), 0, 154}, {LOAD_NEXT(B, 0), 0, 154, NO_ROOM}, {TAKE(C, 18), 0, 172},
		{GIVE(C), 0, 154}, {GIVE(A), 0, 0}}},
	/* One that just fits; the next one does not, until the first is gone. */
	{"just_fits", "700m", .rounds = LOADERS, .acts = {
		{LEAVE(A, 20), 0, 152}, {LOAD_NEXT(B, 0), 20, 152}, {LOAD_NEXT(C, 1), 20, 152, NO_ROOM},
		{TAKE(D, 2), 20, 152, NO_ROOM}, {UNLOAD(B), UNCHECKED}, {REST, 0, 152},
		{LOAD_NEXT(C, 1), 20, 152}, {UNLOAD(C), UNCHECKED}, {REST, 0, 152}, {GIVE(A), 0, 0}}},
};
TEST_TABLE(codes, own_play);

static const struct own_row found = {"found", "1g", .acts = {LOADED_AND_UNLOADED}};
/* clang-format on */

TEST(until_full)
{
	static union loaded loaded[64];
	unsigned count = 0;
	CUresult result;

	start("1g");
	while ((result = load(count, &loaded[count])) == CUDA_SUCCESS)
		count++;
	CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(count, (GIB - CONTEXT - HIDDEN) / MODULE);
	assert_books(count * MODULE, 0);
	CHECK_AT_MOST(outside_used(0), GIB + GRANULE);
	rest();
	assert_books(count * MODULE, 0);
	for (unsigned i = 0; i < count; i++)
		unload(i, loaded[i]);
	rest();
	assert_books(0, 0);
}

/* What the driver refuses costs nothing. */
TEST(not_loaded)
{
	static const CUresult wrong = CUDA_ERROR_UNKNOWN;
	union loaded none = {.any = (void *)UNTOUCHED};

	env_set("VGPU_SIM_FAULTS", "cuModuleLoad@1=999,cuModuleLoadData@1=999,"
				   "cuModuleLoadDataEx@1=999,cuModuleLoadFatBinary@1=999,"
				   "cuLibraryLoadData@1=999,cuLibraryLoadFromFile@1=999,"
				   "cuModuleUnload@1=999,cuLibraryUnload@1=999");
	start("1g");
	for (unsigned i = 0; i < LOADERS; i++)
		CHECK_EQUAL(load(i, &none), wrong);
	CHECK_EQUAL(cuModuleLoadData(&none.module, "nonsense"), CUDA_ERROR_INVALID_IMAGE);
	CHECK_EQUAL(cuModuleLoad(&none.module, scene_path("none")), CUDA_ERROR_FILE_NOT_FOUND);
	CHECK_EQUAL(cuModuleLoadData(NULL, code), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuModuleLoad(NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuLibraryLoadData(NULL, code, NULL, NULL, 0, NULL, NULL, 0),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK(none.any == (void *)UNTOUCHED);
	assert_books(0, 0);
	for (unsigned i = 0; i < LOADERS; i += 4) {
		CHECK_OK(load(i, &none));
		CHECK_EQUAL(i ? cuLibraryUnload(none.lib) : cuModuleUnload(none.module), wrong);
		rest();
		assert_books(MODULE, 0);
		unload(i, none);
		rest();
		assert_books(0, 0);
	}
}

/* A module goes with its context, a library may be loaded without one. */
TEST(ended_with_context)
{
	union loaded loaded;

	start("1g");
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 4; i++)
			CHECK_OK(load(i, &loaded));
		CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
		CHECK_EQUAL(ledger_own(0).total, 0);
		CHECK_OK(load(4, &loaded));
		CHECK_EQUAL(ledger_own(0).total, 0);
		unload(4, loaded);
		cuda_start(0);
		rest();
		assert_books(0, 0);
	}
}

static CUcontext its_context;

static void *load_many(void *none)
{
	CHECK_OK(cuCtxSetCurrent(its_context));
	for (unsigned i = 0; i < 60; i++) {
		union loaded loaded = {.any = NULL};
		CUresult result = load(i, &loaded);

		CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
		if (result == CUDA_SUCCESS)
			unload(i, loaded);
	}
	return none;
}

/* Each measures the others as well; in the end it is all right again. */
TEST(by_threads)
{
	its_context = start("1g");
	threads_join(threads_start(4, load_many));
	rest();
	assert_books(0, 0);
}

/* -- NVML does not know us -------------------------------------------------------------------- */

/* More may be charged then than is taken, never less; and the quota holds. */
static void assert_no_less(uint64_t quota)
{
	struct vgpu_hami_usage usage = ledger_own(0);
	uint64_t outside = outside_used(0);

	CHECK_AT_MOST(outside, usage.context + usage.module + usage.data + usage.offset);
	CHECK_AT_MOST(outside, quota);
	CHECK_AT_MOST(ledger_used(0), quota);
}

/* NVML shows nothing of this process, each time for another reason. */
static const struct unseen {
	const char *name, *variable, *value;
} unseen_ways[] = {
	{"unseen_pid", "VGPU_SIM_NVML_PIDS", "foreign"},
	{"unseen_list", "VGPU_SIM_NVML_PIDS", "none"},
	{"unseen_figure", "VGPU_SIM_NVML_FIGURES", "none"},
	{"unseen_for_faults", "VGPU_SIM_FAULTS",
	 "nvmlDeviceGetComputeRunningProcesses=999,nvmlDeviceGetComputeRunningProcesses_v2=999,"
	 "nvmlDeviceGetComputeRunningProcesses_v3=999"},
};

static void unseen(const struct unseen *way)
{
	union loaded loaded = {.any = NULL}, none = {.any = (void *)UNTOUCHED};
	unsigned count = 0, pieces = 0;
	CUdeviceptr piece[512];

	env_set(way->variable, way->value);
	start("1g");
	while (count < 10 && load(count, &loaded) == CUDA_SUCCESS) {
		count++;
		CHECK_AT_MOST(count * MODULE, ledger_own(0).module);
		assert_no_less(GIB);
	}
	CHECK_EQUAL(count, 10);
	rest();
	assert_no_less(GIB);
	CHECK_AT_MOST(count * MODULE, ledger_own(0).module);
	CHECK_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1512));
	assert_no_less(GIB);
	pieces = fill(piece, 512, GRANULE);
	assert_no_less(GIB);
	for (unsigned i = 0; i < LOADERS; i++) {
		CHECK_EQUAL(load(i, &none), CUDA_ERROR_OUT_OF_MEMORY);
		assert_no_less(GIB);
	}
	CHECK_EQUAL(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), CUDA_ERROR_OUT_OF_MEMORY);
	while (pieces)
		give(piece[--pieces]);
	unload(count - 1, loaded);
	rest();
	assert_no_less(GIB);
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	CHECK_EQUAL(ledger_own(0).total, 0);
}

TEST_TABLE(unseen_ways, unseen);

/* A release that the driver refused is over: the comparison lowers the accounts afterwards. */
TEST(lowered_after_a_refused_release)
{
	const CUmemAllocationProp prop = MEMORY_OF_GPU_0;
	CUmemGenericAllocationHandle handle;
	union loaded loaded;

	env_set("VGPU_SIM_FAULTS", "cuMemRelease@1=999");
	start("4g");
	CHECK_OK(cuMemCreate(&handle, GRANULE, &prop, 0));
	CHECK(cuMemRelease(handle) != CUDA_SUCCESS);
	CHECK_OK(load(0, &loaded));
	rest();
	assert_books(MODULE, GRANULE);
	unload(0, loaded);
	rest();
	assert_books(0, GRANULE);
	CHECK_OK(cuMemRelease(handle));
}

/* As an older driver in a pid namespace: the process finds itself by what it takes. */
TEST(found_under_another_pid)
{
	env_set("VGPU_SIM_NVML_PIDS", "foreign");
	own_play(&found);
}

/* Others are on the device, and take and give up all the time. */
static void be_restless(int wire)
{
	char byte;

	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path("other.cache"));
	cuda_start(0);
	tell(wire, 0);
	while (recv(wire, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0)
		give(take(6 * MIB));
}

TEST(found_among_others)
{
	struct member other = member_start(be_restless);
	union loaded loaded;

	hear(other.wire);
	env_set("VGPU_SIM_NVML_PIDS", "foreign");
	start("4g"); /* until it is found, a context is charged what all hold */
	for (unsigned i = 0; i < LOADERS; i++) {
		rest();
		CHECK_OK(load(i, &loaded));
	}
	rest();
	assert_books(LOADERS * MODULE, 0);
	member_finish(&other);
}

static void be_unseen(void)
{
	env_set("VGPU_SIM_NVML_PIDS", "none");
	env_set("LIBCUDA_LOG_LEVEL", "1");
	start("1g");
	for (unsigned i = 0; i < 20; i++)
		rest();
}

TEST(not_found_is_said)
{
	struct said said = member_listen(be_unseen);

	CHECK_EQUAL(said.status, 0);
	CHECK_EQUAL(lines_in(said.err), 1);
	CHECK(strstr(said.err, "NVML shows no memory of this process on GPU 0"));
}

/* All lists name us: it is the same memory. */
TEST(seen_thrice)
{
	env_set("VGPU_SIM_NVML_LISTS", "all");
	own_play(&found);
}

/* -- limits ----------------------------------------------------------------------------------- */

/* clang-format off */
/* A byte of stack takes 132 * 2048 bytes on the device, and a process has 1024 bytes for nothing. */
static const struct own_row stacks[] = {
	/* It is charged at once, and exactly after a comparison. */
	{"stack", "4g", .acts = {
		{SET_STACK(2048), COVERED}, {REST, 264, 0}, {SET_STACK(4096), COVERED}, {REST, 792, 0},
		{SET_STACK(3072), COVERED}, {REST, 528, 0}, {SET_STACK(1536), COVERED}, {REST, 132, 0},
		{SET_STACK(1024), COVERED}, {REST, 0, 0}, {SET_STACK(8192), COVERED}, {REST, 1848, 0},
		{SET_STACK(512), COVERED}, {REST, 0, 0}, {SET_STACK(1024), COVERED}, {REST, 0, 0}}},
	/* A slice of 700 MiB has room for 172 MiB. */
	{"stack_refused", "700m", .acts = {
		{SET_STACK(2048), 0, 0, NO_ROOM}, {SET_STACK(8192), 0, 0, NO_ROOM},
		{SET_STACK(100000), 0, 0, NO_ROOM}, {SET_STACK((size_t)1 << 40), 0, 0, NO_ROOM},
		{SET_STACK(SIZE_MAX / 2), 0, 0, NO_ROOM}, {SET_STACK(SIZE_MAX), 0, 0, NO_ROOM},
		{SET_STACK(1536), 132, 0}, {SET_STACK(2048), 132, 0, NO_ROOM}, {LEAVE(A, 0), 132, 40},
		{SET_STACK(1600), 132, 40, NO_ROOM}, {SET_STACK(1024), COVERED}, {REST, 0, 40},
		{TAKE(B, 132), 0, 172}, {GIVE(B), 0, 40}, {GIVE(A), 0, 0}}},
	/* The driver is not asked for what cannot fit. */
	{"stack_unasked", "700m", .faults = "cuCtxSetLimit=999", .acts = {
		{SET_STACK(1032), 0, 0, UNKNOWN}, {SET_STACK(2048), 0, 0, NO_ROOM}}},
	/* The driver takes 4 MiB for 8 bytes, and 2.1 MiB are expected: that is undone. */
	{"stack_undone", "701m", .acts = {
		{LEAVE(A, 3), 0, 170}, {SET_STACK(1032), 0, 170, NO_ROOM}, {GIVE(A), 0, 0}}},
};
TEST_TABLE(stacks, own_play);
/* clang-format on */

/* The driver takes the heap of the device's malloc, and the printf buffer, with a module that needs
 * them. They are charged when they are made larger, and stay charged. They were 8 MiB and 1 MiB. */
TEST(taken_later)
{
	size_t value = 0;
	CUmodule module;

	start("700m"); /* room for 172 MiB */
	CHECK_EQUAL(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 60 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
	CHECK_EQUAL(value, 8 * MIB);
	assert_books(0, 0);
	CHECK_OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 108 * MIB));
	CHECK_EQUAL(ledger_own(0).module, 100 * MIB);
	CHECK_OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 51 * MIB));
	CHECK_EQUAL(ledger_own(0).module, 150 * MIB);
	rest();
	CHECK_EQUAL(ledger_own(0).module, 150 * MIB);
	CHECK_EQUAL(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 101 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * MIB));
	CHECK_EQUAL(ledger_own(0).module, 50 * MIB);
	CHECK_OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, MIB));
	CHECK_OK(cuModuleLoadData(&module, code));
	rest();
	assert_books(MODULE, 0);
}

TEST(other_limits)
{
	env_set("VGPU_SIM_FAULTS", "cuCtxSetLimit@1=999");
	start("600m");
	CHECK_EQUAL(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1032), CUDA_ERROR_UNKNOWN);
	assert_stack(1024);
	assert_books(0, 0);
	CHECK_EQUAL(cuCtxSetLimit(99, 5), CUDA_ERROR_UNSUPPORTED_LIMIT);
	assert_books(0, 0);
	rest();
	assert_books(0, 0);
	CHECK_OK(cuCtxSetCurrent(NULL));
	CHECK_EQUAL(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), CUDA_ERROR_INVALID_CONTEXT);
	assert_books(0, 0);
}

TEST(streams)
{
	CUstream stream[100];

	start("1g");
	for (unsigned i = 0; i < 100; i++)
		CHECK_OK(cuStreamCreate(&stream[i], 0));
	rest();
	assert_books(0, 0);
	for (unsigned i = 0; i < 100; i++)
		CHECK_OK(cuStreamDestroy_v2(stream[i]));
	rest();
	assert_books(0, 0);
}
