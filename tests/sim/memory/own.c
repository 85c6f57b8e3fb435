/* What the driver takes on its own account: code, stacks, green contexts. */
#include "cuda_api.h"

#include <pthread.h>
#include <unistd.h>

#define MODULE (20 * MIB)
#define STACK  ((uint64_t)132 * 2048) /* of a byte a thread */

/* What the device may still hold of a process that has no context any more. */
#define STRAY (4 * MIB)

static const char code[] = ".version 8.0\n.target sm_90\n.visible .entry nothing() { ret; }\n";

static CUcontext start(const char *limit)
{
	CUcontext context;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	env_set("VGPU_SIM_MODULE_MIB", "20");
	scene_write("code.ptx", code);
	context = cuda_start(0);
	give(take(1)); /* settles the context */
	return context;
}

/* At rest: the next comparison has been made. */
static void rest(void)
{
	size_t available, total;

	sleep_ms(25);
	CHECK_CUDA(cuMemGetInfo_v2(&available, &total), CUDA_SUCCESS);
}

static void assert_books(uint64_t module, uint64_t data)
{
	struct vgpu_hami_usage usage = ledger_own(0);

	CHECK_EQUAL(usage.context, CONTEXT);
	CHECK_EQUAL(usage.module, module);
	CHECK_EQUAL(usage.data, data);
	CHECK_EQUAL(usage.offset, HIDDEN);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT + module + data);
}

/* Takes what is left but for some MiB. */
static CUdeviceptr leave(uint64_t bytes)
{
	size_t available, total;

	CHECK_CUDA(cuMemGetInfo_v2(&available, &total), CUDA_SUCCESS);
	return take((available - bytes) / GRANULE * GRANULE);
}

/* -- code ------------------------------------------------------------------------------------- */

#define LOADERS 6

union loaded {
	CUmodule module;
	CUlibrary library;
	void *any;
};

static CUresult load(unsigned loader, union loaded *ret_loaded)
{
	const char *file = scene_path("code.ptx");

	switch (loader % LOADERS) {
	case 0:
		return cuModuleLoad(&ret_loaded->module, file);
	case 1:
		return cuModuleLoadData(&ret_loaded->module, code);
	case 2:
		return cuModuleLoadDataEx(&ret_loaded->module, code, 0, NULL, NULL);
	case 3:
		return cuModuleLoadFatBinary(&ret_loaded->module, code);
	case 4:
		return cuLibraryLoadData(&ret_loaded->library, code, NULL, NULL, 0, NULL, NULL, 0);
	default:
		return cuLibraryLoadFromFile(&ret_loaded->library, file, NULL, NULL, 0, NULL, NULL,
					     0);
	}
}

static void unload(unsigned loader, union loaded loaded)
{
	CHECK_CUDA(loader % LOADERS < 4 ? cuModuleUnload(loaded.module)
					: cuLibraryUnload(loaded.library),
		   CUDA_SUCCESS);
}

static void load_refused(unsigned loader)
{
	union loaded none = {.any = (void *)UNTOUCHED};

	CHECK_CUDA(load(loader, &none), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(none.any == (void *)UNTOUCHED);
}

static void loaded_and_unloaded(void)
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
static void too_big(void)
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
static void just_fits(void)
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

static void until_full(void)
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
static void not_loaded(void)
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
		CHECK_CUDA(i ? cuLibraryUnload(none.library) : cuModuleUnload(none.module), wrong);
		rest();
		assert_books(MODULE, 0);
		unload(i, none);
		rest();
		assert_books(0, 0);
	}
}

/* A module goes with its context, a library may be loaded without one. */
static void ended_with_context(void)
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
static void by_threads(void)
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

static void unseen_pid(void)
{
	env_set("VGPU_SIM_NVML_PIDS", "foreign");
	unseen();
}

static void unseen_list(void)
{
	env_set("VGPU_SIM_NVML_PIDS", "none");
	unseen();
}

static void unseen_figure(void)
{
	env_set("VGPU_SIM_NVML_FIGURES", "none");
	unseen();
}

static void unseen_for_faults(void)
{
	env_set("VGPU_SIM_FAULTS", "nvmlDeviceGetComputeRunningProcesses=999,"
				   "nvmlDeviceGetComputeRunningProcesses_v2=999,"
				   "nvmlDeviceGetComputeRunningProcesses_v3=999");
	unseen();
}

/* All lists name us: it is the same memory. */
static void seen_thrice(void)
{
	env_set("VGPU_SIM_NVML_LISTS", "all");
	loaded_and_unloaded();
}

/* -- limits ----------------------------------------------------------------------------------- */

static void assert_stack(size_t bytes)
{
	size_t now = 0;

	CHECK_CUDA(cuCtxGetLimit(&now, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
	CHECK_EQUAL(now, bytes);
}

static void stack(void)
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

static void stack_refused(void)
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
static void stack_unasked(void)
{
	env_set("VGPU_SIM_FAULTS", "cuCtxSetLimit=999");
	start("700m");
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1032), CUDA_ERROR_UNKNOWN);
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048), CUDA_ERROR_OUT_OF_MEMORY);
	assert_books(0, 0);
}

static void stack_undone(void)
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

static void other_limits(void)
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

static void streams(void)
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

/* -- green contexts --------------------------------------------------------------------------- */

#define GREENS 100 /* of 4 MiB each */

static CUdevResourceDesc share(unsigned multiprocessors)
{
	CUdevResource all, part;
	CUdevResourceDesc desc = NULL;
	unsigned groups = 1;

	CHECK_CUDA(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS);
	CHECK_CUDA(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, multiprocessors),
		   CUDA_SUCCESS);
	CHECK_CUDA(cuDevResourceGenerateDesc(&desc, &part, 1), CUDA_SUCCESS);
	return desc;
}

static CUcontext green(unsigned multiprocessors, CUgreenCtx *ret_green)
{
	CUcontext context = NULL;

	CHECK_CUDA(cuGreenCtxCreate(ret_green, share(multiprocessors), 0, 1), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxFromGreenCtx(&context, *ret_green), CUDA_SUCCESS);
	return context;
}

static CUdeviceptr take_in(CUcontext context, CUcontext back, uint64_t bytes)
{
	CUdeviceptr address;

	CHECK_CUDA(cuCtxSetCurrent(context), CUDA_SUCCESS);
	address = take(bytes);
	CHECK_CUDA(cuCtxSetCurrent(back), CUDA_SUCCESS);
	return address;
}

static void green_one(void)
{
	CUcontext primary = start("1g"), context;
	CUdeviceptr address, again;
	CUgreenCtx greens[2];

	context = green(128, &greens[0]);
	assert_books(16 * MIB, 0);
	address = take_in(context, primary, 30 * MIB);
	again = take_in(context, primary, 10 * MIB);
	assert_books(16 * MIB, 40 * MIB);
	CHECK_CUDA(cuGreenCtxDestroy(greens[0]), CUDA_SUCCESS);
	CHECK_CUDA(cuGreenCtxDestroy(greens[0]), CUDA_ERROR_INVALID_HANDLE);
	rest();
	assert_books(16 * MIB, 40 * MIB); /* the primary context has both */
	give(address);
	context = green(8, &greens[1]); /* in what is there */
	assert_books(16 * MIB, 10 * MIB);
	take_in(context, primary, 6 * MIB);
	give(again);
	assert_books(16 * MIB, 6 * MIB);
	CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).total, 0);
	CHECK_AT_MOST(outside_used(0), STRAY);
}

/* All kinds of things in more green contexts than anybody needs, twice over. */
static void green_many(void)
{
	static const CUDA_ARRAY_DESCRIPTOR flat = {1024, 512, CU_AD_FORMAT_FLOAT, 1};
	CUcontext primary = start("2g"), contexts[GREENS];
	CUgreenCtx greens[GREENS];
	CUarray array;

	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < GREENS; i++) {
			contexts[i] = green(8, &greens[i]);
			assert_books((i + 1) * 4 * MIB, i * 4 * MIB);
			take_in(contexts[i], primary, 2 * MIB);
			CHECK_CUDA(cuCtxSetCurrent(contexts[i]), CUDA_SUCCESS);
			CHECK_CUDA(cuArrayCreate_v2(&array, &flat), CUDA_SUCCESS);
			CHECK_CUDA(cuCtxSetCurrent(primary), CUDA_SUCCESS);
		}
		for (unsigned i = 0; i < GREENS; i += round + 1)
			CHECK_CUDA(cuGreenCtxDestroy(greens[i]), CUDA_SUCCESS);
		rest();
		assert_books(GREENS * 4 * MIB, GREENS * 4 * MIB);
		CHECK_CUDA(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
		CHECK_EQUAL(ledger_own(0).total, 0);
		CHECK_CUDA(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
		CHECK_CUDA(cuCtxSetCurrent(primary), CUDA_SUCCESS);
		rest();
		assert_books(0, 0);
	}
}

/* The same context, asked for time and again, is one. */
static void green_asked_again(void)
{
	CUcontext primary = start("1g"), context, first, other;
	CUgreenCtx a, b;

	first = green(8, &a);
	for (unsigned i = 0; i < 200; i++) {
		CHECK_CUDA(cuCtxFromGreenCtx(&context, a), CUDA_SUCCESS);
		CHECK(context == first);
	}
	other = green(8, &b);
	take_in(first, primary, 2 * MIB);
	take_in(other, primary, 2 * MIB);
	assert_books(8 * MIB, 4 * MIB);
	CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).total, 0);
}

/* Contexts that are none of these keep their own. */
static void green_beside_created(void)
{
	CUcontext primary = start("3g"), created, context;
	CUgreenCtx one;

	context = green(8, &one);
	CHECK_CUDA(cuCtxCreate_v2(&created, 0, 0), CUDA_SUCCESS);
	take_in(created, primary, 20 * MIB);
	take_in(context, primary, 10 * MIB);
	take_in(primary, primary, 4 * MIB);
	CHECK_EQUAL(ledger_own(0).data, 34 * MIB);
	CHECK_CUDA(cuCtxDestroy_v2(created), CUDA_SUCCESS);
	assert_books(4 * MIB, 14 * MIB);
	CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).total, 0);
}

static void green_refused(void)
{
	CUgreenCtx one = (CUgreenCtx)UNTOUCHED;
	CUdevResourceDesc desc;
	CUdeviceptr most;
	uint64_t data;

	start("700m");
	desc = share(128);
	most = leave(10 * MIB);
	data = ledger_own(0).data;
	for (unsigned i = 0; i < 3; i++) {
		CHECK_CUDA(cuGreenCtxCreate(&one, desc, 0, 1), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(one == (CUgreenCtx)UNTOUCHED);
		assert_books(0, data);
	}
	give(most);
	most = leave(40 * MIB);
	CHECK_CUDA(cuGreenCtxCreate(&one, desc, 0, 1), CUDA_SUCCESS);
	assert_books(16 * MIB, ledger_own(0).data);
	CHECK_AT_MOST(outside_used(0), 700 * MIB + GRANULE);
	give(most);
}

static void green_rejected(void)
{
	CUcontext context = (CUcontext)UNTOUCHED;
	CUgreenCtx one = (CUgreenCtx)UNTOUCHED;
	CUdevResourceDesc desc;

	env_set("VGPU_SIM_FAULTS", "cuGreenCtxCreate@1=999,cuCtxFromGreenCtx@1=999,"
				   "cuGreenCtxDestroy@1=999");
	start("1g");
	desc = share(8);
	CHECK_CUDA(cuGreenCtxCreate(&one, desc, 0, 1), CUDA_ERROR_UNKNOWN);
	CHECK_CUDA(cuGreenCtxCreate(&one, desc, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuGreenCtxCreate(&one, NULL, 0, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuGreenCtxCreate(NULL, desc, 0, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuGreenCtxCreate(&one, desc, 7, 1), CUDA_ERROR_INVALID_DEVICE);
	CHECK_CUDA(cuGreenCtxCreate(&one, desc, -1, 1), CUDA_ERROR_INVALID_DEVICE);
	CHECK(one == (CUgreenCtx)UNTOUCHED);
	CHECK_CUDA(cuCtxFromGreenCtx(&context, NULL), CUDA_ERROR_UNKNOWN);
	CHECK_CUDA(cuCtxFromGreenCtx(&context, NULL), CUDA_ERROR_INVALID_HANDLE);
	CHECK(context == (CUcontext)UNTOUCHED);
	CHECK_CUDA(cuGreenCtxDestroy(NULL), CUDA_ERROR_UNKNOWN);
	assert_books(0, 0);
	CHECK_CUDA(cuGreenCtxCreate(&one, desc, 0, 1), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxFromGreenCtx(NULL, one), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuGreenCtxDestroy(one), CUDA_SUCCESS);
	CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_CUDA(cuGreenCtxCreate(&one, desc, 0, 1), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQUAL(ledger_own(0).total, 0);
}

/* Destroying fails once: what is made in it then is the primary context's all the same. */
static void green_not_destroyed(void)
{
	CUcontext primary, context;
	CUgreenCtx one;

	env_set("VGPU_SIM_FAULTS", "cuGreenCtxDestroy@1=999");
	primary = start("1g");
	context = green(8, &one);
	CHECK_CUDA(cuGreenCtxDestroy(one), CUDA_ERROR_UNKNOWN);
	take_in(context, primary, 10 * MIB);
	assert_books(4 * MIB, 10 * MIB);
	CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).total, 0);
}

/* Without a current context there is no looking: the comparison does it. */
static void green_without_current(void)
{
	CUcontext primary = start("1g");
	CUgreenCtx one;
	CUdevResourceDesc desc = share(8);

	CHECK_CUDA(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
	CHECK_CUDA(cuGreenCtxCreate(&one, desc, 0, 1), CUDA_SUCCESS);
	CHECK_AT_MOST(4 * MIB, ledger_own(0).module);
	CHECK_CUDA(cuCtxSetCurrent(primary), CUDA_SUCCESS);
	rest();
	assert_books(4 * MIB, 0);
}

/* What is loaded in a green context, and its stack, are the primary one's. */
static void green_and_others(void)
{
	CUcontext primary = start("1g"), context;
	union loaded loaded;
	CUgreenCtx one;

	context = green(8, &one);
	CHECK_CUDA(cuCtxSetCurrent(context), CUDA_SUCCESS);
	CHECK_CUDA(load(1, &loaded), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1536), CUDA_SUCCESS);
	assert_books(24 * MIB + 512 * STACK, 0);
	CHECK_CUDA(cuGreenCtxDestroy(one), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(primary), CUDA_SUCCESS);
	assert_stack(1536);
	rest();
	assert_books(24 * MIB + 512 * STACK, 0);
	unload(1, loaded);
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
	rest();
	assert_books(4 * MIB, 0);
}

/* -- everything ------------------------------------------------------------------------------- */

#define POOL     (32 * MIB)
#define PHYSICAL (10 * MIB)

static void take_everything(CUcontext primary)
{
	const CUDA_ARRAY3D_DESCRIPTOR flat = {1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0};
	CUcontext context;
	CUdeviceptr address;
	CUmipmappedArray mips;
	union loaded loaded;
	CUstream stream;
	CUarray array;
	CUgreenCtx one;

	take(7 * MIB);
	take(KIB);
	CHECK_CUDA(cuMemAllocManaged(&address, 5 * MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_CUDA(cuArray3DCreate_v2(&array, &flat), CUDA_SUCCESS);
	CHECK_CUDA(cuMipmappedArrayCreate(&mips, &flat, 11), CUDA_SUCCESS);
	CHECK_CUDA(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
	for (unsigned i = 0; i < 4; i++)
		CHECK_CUDA(load(i, &loaded), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1536), CUDA_SUCCESS);
	context = green(64, &one);
	take_in(context, primary, 12 * MIB);
}

/* A reset ends all but what belongs to no context: pools, and memory with a handle. */
static void reset_with_everything(void)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	CUcontext primary = start("3g");
	CUdeviceptr pooled;

	CHECK_CUDA(cuMemAllocAsync(&pooled, MIB, NULL), CUDA_SUCCESS);
	CHECK_CUDA(cuMemCreate(&handle, PHYSICAL, &prop, 0), CUDA_SUCCESS);
	for (unsigned round = 0; round < 3; round++) {
		struct vgpu_hami_usage usage;

		take_everything(primary);
		usage = ledger_own(0);
		CHECK_EQUAL(usage.context, CONTEXT);
		CHECK_AT_MOST(4 * MODULE + 512 * STACK, usage.module);
		CHECK_AT_MOST(outside_used(0), usage.total + STRAY);
		rest();
		usage = ledger_own(0);
		CHECK_EQUAL(usage.context + usage.module + usage.data - 128 * MIB,
			    outside_of(0, getpid()));
		CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
		usage = ledger_own(0);
		CHECK_EQUAL(usage.data, POOL + PHYSICAL);
		CHECK_EQUAL(usage.total, usage.data);
		CHECK_AT_MOST(outside_used(0), usage.data + STRAY);
		CHECK_CUDA(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
		CHECK_CUDA(cuCtxSetCurrent(primary), CUDA_SUCCESS);
		rest();
		assert_books(0, POOL + PHYSICAL);
	}
	CHECK_CUDA(cuMemRelease(handle), CUDA_SUCCESS);
	assert_books(0, POOL);
}

int main(int argc, char **argv)
{
	static const struct scene scenes[] = {
		SCENE(loaded_and_unloaded),
		SCENE(too_big),
		SCENE(just_fits),
		SCENE(until_full),
		SCENE(not_loaded),
		SCENE(ended_with_context),
		SCENE(by_threads),
		SCENE(unseen_pid),
		SCENE(unseen_list),
		SCENE(unseen_figure),
		SCENE(unseen_for_faults),
		SCENE(seen_thrice),
		SCENE(stack),
		SCENE(stack_refused),
		SCENE(stack_unasked),
		SCENE(stack_undone),
		SCENE(other_limits),
		SCENE(streams),
		SCENE(green_one),
		SCENE(green_many),
		SCENE(green_asked_again),
		SCENE(green_beside_created),
		SCENE(green_refused),
		SCENE(green_rejected),
		SCENE(green_not_destroyed),
		SCENE(green_without_current),
		SCENE(green_and_others),
		SCENE(reset_with_everything),
	};

	return SCENES_PLAY(scenes, argc, argv);
}
