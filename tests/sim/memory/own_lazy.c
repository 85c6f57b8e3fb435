/*
 * Code that the driver loads when a function is first launched, which only the comparison with NVML
 * sees, while other threads are at work in the driver.
 */
#include "own_code.h"

#include <pthread.h>
#include <unistd.h>

#define THREADS 2
#define BLOCK   (8 * MIB) /* what each of them allocates */

/*
 * Takes code until there is no room for a granule, which is looked at after each. The comparison
 * takes what other threads have reserved as held, so `reserved` bytes of code may be hidden by what
 * they take afterwards.
 */
static void fill_with_code(uint64_t quota, uint64_t reserved)
{
	for (unsigned i = 0; i < 200; i++) {
		CUdeviceptr address;
		CUfunction function;

		if (cuMemAlloc_v2(&address, GRANULE) != CUDA_SUCCESS)
			break;
		give(address);
		function = lazy_load();
		if (!function)
			break;
		launch(function);
	}
	CHECK_AT_MOST(outside_used(0), quota + MODULE + GRANULE + reserved);
}

/* -- a comparison comes between a handle and its launch ---------------------------------------- */

TEST(compared_before_launch)
{
	start_lazy("4g");
	fetch_functions();
	compare();
	launch_functions();
	assert_full(FUNCTIONS);
}

TEST(compared_with_compute_quota)
{
	env_set("CUDA_DEVICE_SM_LIMIT", "50");
	start_lazy("4g");
	fetch_functions();
	compare();
	launch_functions();
	assert_full(FUNCTIONS);
}

TEST(unloaded_before_launch)
{
	CUmodule module;

	start_lazy("4g");
	CHECK_CUDA(cuModuleLoadData(&module, code), CUDA_SUCCESS);
	fetch_functions();
	CHECK_CUDA(cuModuleUnload(module), CUDA_SUCCESS);
	compare();
	launch_functions();
	assert_full(FUNCTIONS);
}

/* The functions have been launched on another device. */
TEST(launched_in_new_context)
{
	CUcontext context;

	env_set("VGPU_SIM_GPUS", "2x80G");
	env_set("VGPU_SIM_MODULE_LAZY", "1");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	env_set("VGPU_SIM_MODULE_MIB", "20");
	cuda_start(1);
	fetch_functions();
	launch_functions();
	CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(context), CUDA_SUCCESS);
	compare();
	launch_functions();
	assert_full(FUNCTIONS);
}

/* Two devices with a context each. The second device's is current. */
static CUcontext start_two(void)
{
	CUcontext first;

	env_set("VGPU_SIM_GPUS", "2x80G");
	first = start_lazy("4g");
	cuda_start(1);
	return first;
}

/* The functions are launched on the second device, and then in the older context of the first. */
static void launched_in_older_context(void)
{
	CUcontext first = start_two();

	fetch_functions();
	launch_functions();
	CHECK_CUDA(cuCtxSetCurrent(first), CUDA_SUCCESS);
	compare();
	launch_functions();
	assert_full(FUNCTIONS);
}

TEST(launched_in_two_contexts)
{
	launched_in_older_context();
}

TEST(two_contexts_with_compute_quota)
{
	env_set("CUDA_DEVICE_SM_LIMIT", "50");
	launched_in_older_context();
}

/* The context of a launch is that of its stream. */
TEST(launched_in_stream_of_other)
{
	CUcontext first = start_two(), second;
	CUstream stream;

	fetch_functions();
	launch_functions();
	CHECK_CUDA(cuCtxGetCurrent(&second), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(first), CUDA_SUCCESS);
	CHECK_CUDA(cuStreamCreate(&stream, 1), CUDA_SUCCESS);
	compare();
	CHECK_CUDA(cuCtxSetCurrent(second), CUDA_SUCCESS);
	for (unsigned i = 0; i < FUNCTIONS; i++)
		CHECK_CUDA(cuLaunchKernel(functions[i], 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
			   CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(first), CUDA_SUCCESS);
	assert_full(FUNCTIONS);
}

/* A launch in a stream of another context is none in the current one. */
TEST(launched_for_other_before)
{
	CUcontext first = start_two();
	CUstream stream;

	fetch_functions();
	CHECK_CUDA(cuStreamCreate(&stream, 1), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(first), CUDA_SUCCESS);
	for (unsigned i = 0; i < FUNCTIONS; i++)
		CHECK_CUDA(cuLaunchKernel(functions[i], 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
			   CUDA_SUCCESS);
	compare();
	launch_functions();
	assert_full(FUNCTIONS);
}

/* Contexts that have ended took their marks with them: the last one's has the bit of another. */
TEST(launched_after_contexts_ended)
{
	CUcontext first = start_two(), other;

	CHECK_CUDA(cuCtxCreate_v2(&other, 0, 1), CUDA_SUCCESS);
	fetch_functions();
	launch_functions();
	CHECK_CUDA(cuCtxDestroy_v2(other), CUDA_SUCCESS);
	CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_CUDA(cuDevicePrimaryCtxRetain(&first, 0), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(first), CUDA_SUCCESS);
	compare();
	launch_functions();
	assert_full(FUNCTIONS);
}

/* More contexts than are told apart. */
TEST(launched_in_many_contexts)
{
	CUcontext first, others[20];

	env_set("VGPU_SIM_GPUS", "2x80G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_1", "0");
	first = start_lazy("4g");
	for (unsigned i = 0; i < 20; i++)
		CHECK_CUDA(cuCtxCreate_v2(&others[i], 0, 1), CUDA_SUCCESS);
	fetch_functions();
	launch_functions();
	for (unsigned i = 0; i < 20; i++)
		CHECK_CUDA(cuCtxDestroy_v2(others[i]), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(first), CUDA_SUCCESS);
	compare();
	launch_functions();
	assert_full(FUNCTIONS);
}

/* The program has the handles before, and loads the code without a launch. */
TEST(loaded_early)
{
	CUfunction listed;
	CUmodule module;

	start_lazy("4g");
	CHECK_CUDA(cuModuleLoadData(&module, code), CUDA_SUCCESS);
	CHECK_CUDA(cuModuleEnumerateFunctions(&listed, 1, module), CUDA_SUCCESS);
	compare();
	CHECK_CUDA(cuFuncLoad(listed), CUDA_SUCCESS);
	assert_full(1);
}

/* A call that loads code, and is not a launch, comes right after the handle. */
TEST(loaded_by_another_call)
{
	CUlibrary library;
	CUkernel kernel;
	CUdeviceptr absent;

	start_lazy("4g");
	CHECK_CUDA(cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
	CHECK_CUDA(cuLibraryGetKernel(&kernel, library, "nothing"), CUDA_SUCCESS);
	CHECK_CUDA(cuLibraryGetGlobal(&absent, NULL, library, "absent"), CUDA_ERROR_NOT_FOUND);
	assert_full(1);
}

/* A load that is refused loads nothing yet. */
TEST(refused_before_load)
{
	CUfunction listed;
	CUmodule module;

	env_set("VGPU_SIM_FAULTS", "cuFuncLoad@1=999");
	start_lazy("4g");
	CHECK_CUDA(cuModuleLoadData(&module, code), CUDA_SUCCESS);
	CHECK_CUDA(cuModuleEnumerateFunctions(&listed, 1, module), CUDA_SUCCESS);
	CHECK(cuFuncLoad(listed) != CUDA_SUCCESS);
	compare();
	launch(listed);
	assert_full(1);
}

/* A launch that is refused loads nothing yet. */
TEST(refused_before_launch)
{
	env_set("VGPU_SIM_FAULTS", "cuLaunchKernel@1=999,cuLaunchKernel@2=999,cuLaunchKernel@3=999,"
				   "cuLaunchKernel@4=999,cuLaunchKernel@5=999");
	start_lazy("4g");
	fetch_functions();
	for (unsigned i = 0; i < FUNCTIONS; i++)
		CHECK(cuLaunchKernel(functions[i], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) !=
		      CUDA_SUCCESS);
	compare();
	launch_functions();
	assert_full(FUNCTIONS);
}

/* -- the gate is open ---------------------------------------------------------------------- */

#define OPENERS 70 /* launches after which more than FUNCTIONS are let through */

static void open_gate(void)
{
	CUfunction opener = lazy_load();

	for (unsigned i = 0; i < OPENERS; i++)
		launch(opener);
}

TEST(launched_through_open_gate)
{
	start_lazy("4g");
	open_gate();
	fetch_functions();
	compare();
	launch_functions();
	assert_full(1 + FUNCTIONS);
}

/* A launch on several devices, of which there is one. */
TEST(many_launched_through_open_gate)
{
	CUDA_LAUNCH_PARAMS params = {
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
	};

	start_lazy("4g");
	CHECK_CUDA(cuStreamCreate(&params.hStream, 0), CUDA_SUCCESS);
	open_gate();
	fetch_functions();
	compare();
	for (unsigned i = 0; i < FUNCTIONS; i++) {
		params.function = functions[i];
		CHECK_CUDA(cuLaunchCooperativeKernelMultiDevice(&params, 1, 0), CUDA_SUCCESS);
	}
	assert_full(1 + FUNCTIONS);
}

/* -- after an unload ------------------------------------------------------------------------- */

#define MODULES 16

static void unload_all(const CUmodule *modules)
{
	for (unsigned i = 0; i < MODULES; i++)
		CHECK_CUDA(cuModuleUnload(modules[i]), CUDA_SUCCESS);
	rest();
}

/* Modules get the memory of others that were unloaded, and some functions the handles of theirs. */
TEST(launched_after_unload)
{
	CUfunction function;
	CUmodule modules[MODULES];

	start_lazy("4g");
	for (unsigned i = 0; i < 2 * MODULES; i++) {
		if (i == MODULES)
			unload_all(modules);
		CHECK_CUDA(cuModuleLoadData(&modules[i % MODULES], code), CUDA_SUCCESS);
		CHECK_CUDA(cuModuleGetFunction(&function, modules[i % MODULES], "nothing"),
			   CUDA_SUCCESS);
		compare();
		launch(function);
		compare();
		CHECK_EQUAL(ledger_own(0).module, (1 + i % MODULES) * MODULE);
	}
}

/* -- many handles ------------------------------------------------------------------------------ */

#define OTHERS 10000 /* more handles than are kept */

static void fetch_others(void)
{
	static char many[OTHERS * 64];
	CUfunction *listed = calloc(OTHERS, sizeof(*listed));
	size_t length = 0;
	CUmodule module;

	CHECK(listed);
	length += (size_t)snprintf(many, sizeof(many), ".version 8.0\n.target sm_90\n");
	for (unsigned i = 0; i < OTHERS; i++)
		length += (size_t)snprintf(many + length, sizeof(many) - length,
					   ".visible .entry f%u() { ret; }\n", i);
	CHECK_CUDA(cuModuleLoadData(&module, many), CUDA_SUCCESS);
	CHECK_CUDA(cuModuleEnumerateFunctions(listed, OTHERS, module), CUDA_SUCCESS);
	free(listed);
}

/* As many handles are replaced as may be, then the functions are handed out and launched. */
TEST(many_handles)
{
	start_lazy("4g");
	fetch_others();
	fetch_functions();
	compare();
	launch_functions();
	assert_full(FUNCTIONS);
}

/* Their handles are replaced by others before they are launched. */
TEST(many_handles_later)
{
	start_lazy("4g");
	fetch_functions();
	fetch_others();
	compare();
	launch_functions();
	assert_full(FUNCTIONS);
}

/* -- a thread is in the driver for long ------------------------------------------------------- */

static CUcontext its_context;
static int at_work; /* atomic */

static void *in_free(void *address)
{
	CHECK_CUDA(cuCtxSetCurrent(its_context), CUDA_SUCCESS);
	give((CUdeviceptr)(uintptr_t)address);
	return NULL;
}

static void *in_load(void *none)
{
	CUmodule module;
	CUresult result;

	CHECK_CUDA(cuCtxSetCurrent(its_context), CUDA_SUCCESS);
	result = cuModuleLoadData(&module, code); /* the slice is full by then */
	CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
	return none;
}

/* While the other thread's call is in the driver. */
static void beside(void *(*work)(void *), uint64_t argument)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, work, (void *)(uintptr_t)argument) == 0);
	while (access(scene_path("parked"), F_OK) != 0)
		sleep_ms(1);
	fill_with_code(GIB, 0);
	CHECK(unlink(scene_path("parked")) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	fill_with_code(GIB, 0);
}

static void park(const char *call)
{
	char rule[512];

	snprintf(rule, sizeof(rule), "%s=%s", call, scene_path("parked"));
	env_set("VGPU_SIM_PARK", rule);
}

TEST(beside_a_free)
{
	park("cuMemFree_v2@2"); /* start_lazy() makes the first */
	its_context = start_lazy("1g");
	beside(in_free, take(32 * MIB));
}

TEST(beside_a_load)
{
	park("cuModuleLoadData");
	its_context = start_lazy("1g");
	beside(in_load, 0);
}

static void *alloc_and_free(void *none)
{
	CHECK_CUDA(cuCtxSetCurrent(its_context), CUDA_SUCCESS);
	while (__atomic_load_n(&at_work, __ATOMIC_ACQUIRE)) {
		CUdeviceptr address;

		if (cuMemAlloc_v2(&address, BLOCK) == CUDA_SUCCESS)
			give(address);
	}
	return none;
}

/* Threads that allocate and free all the time: no figure is of one moment. */
TEST(beside_allocations)
{
	pthread_t threads[THREADS];

	its_context = start_lazy("1g");
	at_work = 1;
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, alloc_and_free, NULL) == 0);
	fill_with_code(GIB, THREADS * BLOCK);
	__atomic_store_n(&at_work, 0, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	fill_with_code(GIB, THREADS * BLOCK);
}

/* -- what is reserved and not taken yet ------------------------------------------------------- */

static void *alloc_and_keep(void *none)
{
	CHECK_CUDA(cuCtxSetCurrent(its_context), CUDA_SUCCESS);
	take(BLOCK);
	return none;
}

static const char *const calls[THREADS] = {"first", "second"};

/* Threads that have reserved a block each, and whose calls have not come to the driver. */
static void reserve_blocks(pthread_t threads[THREADS])
{
	for (unsigned i = 0; i < THREADS; i++) {
		CHECK(pthread_create(&threads[i], NULL, alloc_and_keep, NULL) == 0);
		while (access(scene_path(calls[i]), F_OK) != 0)
			sleep_ms(1);
	}
}

static void take_blocks(pthread_t threads[THREADS])
{
	for (unsigned i = 0; i < THREADS; i++) {
		CHECK(unlink(scene_path(calls[i])) == 0);
		CHECK(pthread_join(threads[i], NULL) == 0);
	}
}

/* The second and the third allocation are the threads': start_lazy() makes the first. */
static void start_with_reservations(pthread_t threads[THREADS])
{
	char rules[1024];

	snprintf(rules, sizeof(rules), "cuMemAlloc_v2@2=%s,cuMemAlloc_v2@3=%s",
		 scene_path(calls[0]), scene_path(calls[1]));
	env_set("VGPU_SIM_PARK", rules);
	its_context = start_lazy("1g");
	reserve_blocks(threads);
}

/* Launches code of MODULE, and allocates, which compares. */
static void launch_and_compare(void)
{
	CUfunction function = lazy_load();

	CHECK(function);
	launch(function);
	give(take(GRANULE));
}

/* The bytes that the threads have reserved hide as many of the code, however much is loaded. The
 * next comparison at rest charges them. */
TEST(beside_reservations)
{
	pthread_t threads[THREADS];

	start_with_reservations(threads);
	for (unsigned loads = 1; loads <= 3; loads++) {
		launch_and_compare();
		CHECK_EQUAL(ledger_own(0).module, loads * MODULE - THREADS * BLOCK);
	}
	take_blocks(threads);
	rest();
	assert_books(3 * MODULE, THREADS * BLOCK);
}

/* A slice is filled beside reservations: it is above its quota by what they hide, and one launch.
 */
TEST(full_beside_reservations)
{
	pthread_t threads[THREADS];

	start_with_reservations(threads);
	fill_with_code(GIB, 0); /* the blocks are not on the device */
	take_blocks(threads);
	CHECK_AT_MOST(outside_used(0), GIB + MODULE + GRANULE + THREADS * BLOCK);
	fill_with_code(GIB, THREADS * BLOCK);
}
