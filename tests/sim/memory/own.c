/* What the driver takes on its own account: code, and stacks. Green contexts: own_green.c. */
#include "own_fixture.h"

#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

/* -- code ------------------------------------------------------------------------------------- */

static void load_refused(unsigned loader)
{
	union loaded none = {.any = (void *)UNTOUCHED};

	CHECK_CUDA(load(loader, &none), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(none.any == (void *)UNTOUCHED);
}

TEST(loaded_and_unloaded)
{
	union loaded loaded[LOADERS];

	start("1g");
	for (unsigned i = 0; i < LOADERS; i++) {
		CHECK_CUDA(load(i, &loaded[i]), CUDA_SUCCESS);
		assert_books((i + 1) * MODULE, 0);
	}
	rest();
	assert_books(LOADERS * MODULE, 0);
	for (unsigned i = 0; i < LOADERS; i++) {
		unload(i, loaded[i]);
		rest();
		assert_books((LOADERS - 1 - i) * MODULE, 0);
	}
}

/* It does not fit, and is unloaded again: nothing of it stays, and what is left is there for
 * others. */
TEST(too_big)
{
	CUdeviceptr most;
	uint64_t used;

	start("700m");
	most = leave(MODULE - GRANULE);
	used = ledger_used(0);
	for (unsigned i = 0; i < LOADERS; i++) {
		uint64_t data = ledger_own(0).data;

		load_refused(i);
		assert_books(0, data);
		CHECK_EQUAL(ledger_used(0), used);
	}
	give(take(MODULE - GRANULE));
	give(most);
	assert_books(0, 0);
}

/* One that just fits; the next does not, until the first is gone. */
TEST(just_fits)
{
	for (unsigned i = 0; i < LOADERS; i++) {
		union loaded first = {.any = NULL}, second;
		CUdeviceptr most;

		if (i == 0)
			start("700m");
		most = leave(MODULE);
		CHECK_CUDA(load(i, &first), CUDA_SUCCESS);
		assert_books(MODULE, ledger_own(0).data);
		load_refused(i + 1);
		refused(GRANULE);
		unload(i, first);
		rest();
		CHECK_CUDA(load(i + 1, &second), CUDA_SUCCESS);
		unload(i + 1, second);
		rest();
		give(most);
		assert_books(0, 0);
	}
}

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
		CHECK_CUDA(load(i, &none), wrong);
	CHECK_CUDA(cuModuleLoadData(&none.module, "nonsense"), CUDA_ERROR_INVALID_IMAGE);
	CHECK_CUDA(cuModuleLoad(&none.module, scene_path("none")), CUDA_ERROR_FILE_NOT_FOUND);
	CHECK_CUDA(cuModuleLoadData(NULL, code), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuModuleLoad(NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuLibraryLoadData(NULL, code, NULL, NULL, 0, NULL, NULL, 0),
		   CUDA_ERROR_INVALID_VALUE);
	CHECK(none.any == (void *)UNTOUCHED);
	assert_books(0, 0);
	for (unsigned i = 0; i < LOADERS; i += 4) {
		CHECK_CUDA(load(i, &none), CUDA_SUCCESS);
		CHECK_CUDA(i ? cuLibraryUnload(none.lib) : cuModuleUnload(none.module), wrong);
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
	CUcontext context;
	union loaded loaded;

	start("1g");
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 4; i++)
			CHECK_CUDA(load(i, &loaded), CUDA_SUCCESS);
		CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
		CHECK_EQUAL(ledger_own(0).total, 0);
		CHECK_CUDA(load(4, &loaded), CUDA_SUCCESS);
		CHECK_EQUAL(ledger_own(0).total, 0);
		unload(4, loaded);
		CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
		CHECK_CUDA(cuCtxSetCurrent(context), CUDA_SUCCESS);
		rest();
		assert_books(0, 0);
	}
}

static void *load_many(void *arg)
{
	(void)arg;
	CHECK_CUDA(cuCtxSetCurrent(arg), CUDA_SUCCESS);
	for (unsigned i = 0; i < 60; i++) {
		union loaded loaded = {.any = NULL};
		CUresult result = load(i, &loaded);

		CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
		if (result == CUDA_SUCCESS)
			unload(i, loaded);
	}
	return NULL;
}

/* Each measures the others as well; in the end it is all right again. */
TEST(by_threads)
{
	pthread_t threads[4];
	CUcontext context = start("1g");

	for (unsigned i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, load_many, context) == 0);
	for (unsigned i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
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

static void unseen(void)
{
	union loaded loaded = {.any = NULL}, none = {.any = (void *)UNTOUCHED};
	unsigned count = 0, pieces = 0;
	CUdeviceptr piece[512];

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
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1512), CUDA_SUCCESS);
	assert_no_less(GIB);
	pieces = fill(piece, 512, GRANULE);
	assert_no_less(GIB);
	for (unsigned i = 0; i < LOADERS; i++) {
		CHECK_CUDA(load(i, &none), CUDA_ERROR_OUT_OF_MEMORY);
		assert_no_less(GIB);
	}
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), CUDA_ERROR_OUT_OF_MEMORY);
	while (pieces)
		give(piece[--pieces]);
	unload(count - 1, loaded);
	rest();
	assert_no_less(GIB);
	CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).total, 0);
}

/* A release that the driver refused is over: the comparison lowers the accounts afterwards. */
TEST(lowered_after_a_refused_release)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	union loaded loaded;

	env_set("VGPU_SIM_FAULTS", "cuMemRelease@1=999");
	start("4g");
	CHECK_CUDA(cuMemCreate(&handle, GRANULE, &prop, 0), CUDA_SUCCESS);
	CHECK(cuMemRelease(handle) != CUDA_SUCCESS);
	CHECK_CUDA(load(0, &loaded), CUDA_SUCCESS);
	rest();
	assert_books(MODULE, GRANULE);
	unload(0, loaded);
	rest();
	assert_books(0, GRANULE);
	CHECK_CUDA(cuMemRelease(handle), CUDA_SUCCESS);
}

TEST(unseen_pid)
{
	env_set("VGPU_SIM_NVML_PIDS", "foreign");
	unseen();
}

TEST(unseen_list)
{
	env_set("VGPU_SIM_NVML_PIDS", "none");
	unseen();
}

TEST(unseen_figure)
{
	env_set("VGPU_SIM_NVML_FIGURES", "none");
	unseen();
}

TEST(unseen_for_faults)
{
	env_set("VGPU_SIM_FAULTS", "nvmlDeviceGetComputeRunningProcesses=999,"
				   "nvmlDeviceGetComputeRunningProcesses_v2=999,"
				   "nvmlDeviceGetComputeRunningProcesses_v3=999");
	unseen();
}

/* As an older driver in a pid namespace: the process finds itself by what it takes. */
TEST(found_under_another_pid)
{
	env_set("VGPU_SIM_NVML_PIDS", "foreign");
	loaded_and_unloaded();
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
		CHECK_CUDA(load(i, &loaded), CUDA_SUCCESS);
	}
	rest();
	assert_books(LOADERS * MODULE, 0);
	tell(other.wire, 0);
	member_end(&other);
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
	loaded_and_unloaded();
}

/* -- limits ----------------------------------------------------------------------------------- */

TEST(stack)
{
	static const size_t sizes[] = {2048, 4096, 3072, 1536, 1024, 8192, 512, 1024};

	start("4g");
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		uint64_t more = sizes[i] > 1024 ? (sizes[i] - 1024) * STACK : 0;

		CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, sizes[i]), CUDA_SUCCESS);
		CHECK_AT_MOST(more, ledger_own(0).module); /* at once */
		rest();
		assert_stack(sizes[i]);
		assert_books(more, 0);
	}
}

TEST(stack_refused)
{
	static const size_t sizes[] = {2048, 8192, 100000, (size_t)1 << 40, SIZE_MAX / 2, SIZE_MAX};
	CUdeviceptr rest_of_it;

	start("700m"); /* 172 MiB are left; 1 KiB more takes 264 */
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, sizes[i]), CUDA_ERROR_OUT_OF_MEMORY);
		assert_stack(1024);
		assert_books(0, 0);
	}
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1536), CUDA_SUCCESS); /* 132 */
	assert_books(512 * STACK, 0);
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048), CUDA_ERROR_OUT_OF_MEMORY);
	assert_stack(1536);
	assert_books(512 * STACK, 0);
	rest_of_it = leave(0);
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1600), CUDA_ERROR_OUT_OF_MEMORY);
	assert_stack(1536);
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
	rest();
	give(take(132 * MIB));
	give(rest_of_it);
	assert_stack(1024);
	assert_books(0, 0);
}

/* What cannot fit is refused unasked; and what takes more than it should is undone. */
TEST(stack_unasked)
{
	env_set("VGPU_SIM_FAULTS", "cuCtxSetLimit=999");
	start("700m");
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1032), CUDA_ERROR_UNKNOWN);
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048), CUDA_ERROR_OUT_OF_MEMORY);
	assert_books(0, 0);
}

TEST(stack_undone)
{
	CUdeviceptr most;
	uint64_t data;

	start("701m");
	most = leave(3 * MIB); /* 8 bytes a thread take 4, where 2.1 are expected */
	data = ledger_own(0).data;
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1032), CUDA_ERROR_OUT_OF_MEMORY);
	assert_stack(1024);
	assert_books(0, data);
	give(most);
}

TEST(other_limits)
{
	size_t value = 0;

	env_set("VGPU_SIM_FAULTS", "cuCtxSetLimit@1=999");
	start("600m");
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1032), CUDA_ERROR_UNKNOWN);
	assert_stack(1024);
	assert_books(0, 0);
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, GIB), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, GIB), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE), CUDA_SUCCESS);
	CHECK_EQUAL(value, GIB);
	CHECK_CUDA(cuCtxSetLimit(99, 5), CUDA_ERROR_UNSUPPORTED_LIMIT);
	assert_books(0, 0);
	rest();
	assert_books(0, 0);
	CHECK_CUDA(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), CUDA_ERROR_INVALID_CONTEXT);
	assert_books(0, 0);
}

TEST(streams)
{
	CUstream stream[100];

	start("1g");
	for (unsigned i = 0; i < 100; i++)
		CHECK_CUDA(cuStreamCreate(&stream[i], 0), CUDA_SUCCESS);
	rest();
	assert_books(0, 0);
	for (unsigned i = 0; i < 100; i++)
		CHECK_CUDA(cuStreamDestroy_v2(stream[i]), CUDA_SUCCESS);
	rest();
	assert_books(0, 0);
}
