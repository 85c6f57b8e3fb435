/*
 * Code that the driver loads when a function is first launched, which only the comparison with NVML
 * sees, while other threads are at work in the driver.
 */
#include "own_code.h"
#include "parked.h"

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

/* -- rows of steps ----------------------------------------------------------------------------- */

static CUcontext first;      /* of the first GPU; NULL: it has none */
static CUcontext others[20]; /* of the second GPU; more than are told apart */
static unsigned others_count;
static CUmodule module;
static CUfunction listed; /* of the module, and not handed out by name */
static CUstream stream;

static void load_module(void)
{
	CHECK_OK(cuModuleLoadData(&module, code));
}

static void unload_module(void)
{
	CHECK_OK(cuModuleUnload(module));
}

static void list_module(void)
{
	load_module();
	CHECK_OK(cuModuleEnumerateFunctions(&listed, 1, module));
}

static void load_listed(void)
{
	CHECK_OK(cuFuncLoad(listed));
}

static void load_refused(void)
{
	CHECK(cuFuncLoad(listed) != CUDA_SUCCESS);
}

static void launch_listed(void)
{
	launch(listed);
}

static void launches_refused(void)
{
	for (unsigned i = 0; i < FUNCTIONS; i++)
		CHECK(cuLaunchKernel(functions[i], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) !=
		      CUDA_SUCCESS);
}

static void find_variable(void)
{
	CUlibrary library;
	CUkernel kernel;
	CUdeviceptr absent;

	CHECK_OK(cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0));
	CHECK_OK(cuLibraryGetKernel(&kernel, library, "nothing"));
	CHECK_EQUAL(cuLibraryGetGlobal(&absent, NULL, library, "absent"), CUDA_ERROR_NOT_FOUND);
}

static void make_stream(void)
{
	CHECK_OK(cuStreamCreate(&stream, 1));
}

static void launch_in_stream(void)
{
	for (unsigned i = 0; i < FUNCTIONS; i++)
		CHECK_OK(cuLaunchKernel(functions[i], 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

/* In a launch on several GPUs, of which there is one. */
static void launch_on_several(void)
{
	CUDA_LAUNCH_PARAMS params = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1};

	params.blockDimX = params.blockDimY = params.blockDimZ = 1;
	params.hStream = stream;
	for (unsigned i = 0; i < FUNCTIONS; i++) {
		params.function = functions[i];
		CHECK_OK(cuLaunchCooperativeKernelMultiDevice(&params, 1, 0));
	}
}

#define OPENERS 70 /* launches after which more than FUNCTIONS are let through */

static void open_gate(void)
{
	CUfunction opener = lazy_load();

	for (unsigned i = 0; i < OPENERS; i++)
		launch(opener);
}

static void start_one(void)
{
	first = start_lazy("4g");
}

static void enter_first(void)
{
	if (first)
		CHECK_OK(cuCtxSetCurrent(first));
	else
		first = cuda_start(0);
}

static void enter_second(void)
{
	cuda_start(1);
}

/* The second GPU's context is current. */
static void start_two(void)
{
	env_set("VGPU_SIM_GPUS", "2x80G");
	start_one();
	enter_second();
}

static void start_on_second(void)
{
	env_set("VGPU_SIM_GPUS", "2x80G");
	env_set("VGPU_SIM_MODULE_LAZY", "1");
	env_set("VGPU_SIM_MODULE_MIB", "20");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	enter_second();
}

static void reset_first(void)
{
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	first = NULL;
}

static void make_other(void)
{
	CHECK_OK(cuCtxCreate_v2(&others[others_count++], 0, 1));
}

static void start_many(void)
{
	env_set("VGPU_SIM_GPUS", "2x80G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_1", "0");
	start_one();
	while (others_count < 20)
		make_other();
}

static void destroy_others(void)
{
	while (others_count)
		CHECK_OK(cuCtxDestroy_v2(others[--others_count]));
}

#define OTHERS 10000 /* more handles than are kept */

static void fetch_others(void)
{
	static char many[OTHERS * 64];
	CUfunction *every = calloc(OTHERS, sizeof(*every));
	size_t length = 0;

	CHECK(every);
	length += (size_t)snprintf(many, sizeof(many), ".version 8.0\n.target sm_90\n");
	for (unsigned i = 0; i < OTHERS; i++)
		length += (size_t)snprintf(many + length, sizeof(many) - length,
					   ".visible .entry f%u() { ret; }\n", i);
	CHECK_OK(cuModuleLoadData(&module, many));
	CHECK_OK(cuModuleEnumerateFunctions(every, OTHERS, module));
	free(every);
}

struct row {
	const char *name;
	void (*steps[10])(void);
	unsigned charged;   /* pieces of code, in the end */
	const char *faults; /* VGPU_SIM_FAULTS, or NULL */
	const char *cores;  /* CUDA_DEVICE_SM_LIMIT, or NULL */
};

static void play(const struct row *row)
{
	env_set("VGPU_SIM_FAULTS", row->faults);
	env_set("CUDA_DEVICE_SM_LIMIT", row->cores);
	for (unsigned i = 0; i < 10 && row->steps[i]; i++)
		row->steps[i]();
	assert_full(row->charged);
}

/* clang-format off */
#define FETCH  fetch_functions
#define LAUNCH launch_functions

/* A comparison comes between a handle and its launch. */
static const struct row rows[] = {
	{"compared_before_launch", {start_one, FETCH, compare, LAUNCH}, FUNCTIONS},
	{"compared_with_compute_quota", {start_one, FETCH, compare, LAUNCH}, FUNCTIONS, .cores = "50"},
	{"unloaded_before_launch",
		{start_one, load_module, FETCH, unload_module, compare, LAUNCH}, FUNCTIONS},
	/* The functions have been launched on another GPU: the context is new, or older. */
	{"launched_in_new_context",
		{start_on_second, FETCH, LAUNCH, enter_first, compare, LAUNCH}, FUNCTIONS},
	{"launched_in_two_contexts",
		{start_two, FETCH, LAUNCH, enter_first, compare, LAUNCH}, FUNCTIONS},
	{"two_contexts_with_compute_quota",
		{start_two, FETCH, LAUNCH, enter_first, compare, LAUNCH}, FUNCTIONS, .cores = "50"},
	/* The context of a launch is that of its stream. */
	{"launched_in_stream_of_other",
		{start_two, FETCH, LAUNCH, enter_first, make_stream, compare, enter_second,
		 launch_in_stream, enter_first}, FUNCTIONS},
	/* A launch in a stream of another context is none in the current one. */
	{"launched_for_other_before",
		{start_two, FETCH, make_stream, enter_first, launch_in_stream, compare, LAUNCH},
		FUNCTIONS},
	/* Contexts that end take their marks with them: the last one has the bit of another. */
	{"launched_after_contexts_ended",
		{start_two, make_other, FETCH, LAUNCH, destroy_others, reset_first, enter_first, compare,
		 LAUNCH}, FUNCTIONS},
	{"launched_in_many_contexts",
		{start_many, FETCH, LAUNCH, destroy_others, enter_first, compare, LAUNCH}, FUNCTIONS},
	/* The program has the handles before, and loads the code without a launch. */
	{"loaded_early", {start_one, list_module, compare, load_listed}, 1},
	/* A call that loads code, and is not a launch, comes right after the handle. */
	{"loaded_by_another_call", {start_one, find_variable}, 1},
	/* A load or a launch that is refused loads nothing yet. */
	{"refused_before_load",
		{start_one, list_module, load_refused, compare, launch_listed}, 1,
		.faults = "cuFuncLoad@1=999"},
	{"refused_before_launch", {start_one, FETCH, launches_refused, compare, LAUNCH}, FUNCTIONS,
		.faults = "cuLaunchKernel@1=999,cuLaunchKernel@2=999,cuLaunchKernel@3=999,"
			  "cuLaunchKernel@4=999,cuLaunchKernel@5=999"},
	{"launched_through_open_gate",
		{start_one, open_gate, FETCH, compare, LAUNCH}, 1 + FUNCTIONS},
	{"many_launched_through_open_gate",
		{start_one, make_stream, open_gate, FETCH, compare, launch_on_several}, 1 + FUNCTIONS},
	/* As many handles are replaced as may be, before the functions are handed out, and after. */
	{"many_handles", {start_one, fetch_others, FETCH, compare, LAUNCH}, FUNCTIONS},
	{"many_handles_later", {start_one, FETCH, fetch_others, compare, LAUNCH}, FUNCTIONS},
};
TEST_TABLE(rows, play);
/* clang-format on */

/* -- after an unload ------------------------------------------------------------------------- */

#define MODULES 16

static void unload_all(const CUmodule *modules)
{
	for (unsigned i = 0; i < MODULES; i++)
		CHECK_OK(cuModuleUnload(modules[i]));
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
		CHECK_OK(cuModuleLoadData(&modules[i % MODULES], code));
		CHECK_OK(cuModuleGetFunction(&function, modules[i % MODULES], "nothing"));
		compare();
		launch(function);
		compare();
		CHECK_EQUAL(ledger_own(0).module, (1 + i % MODULES) * MODULE);
	}
}

/* -- a thread is in the driver for long ------------------------------------------------------- */

static CUdeviceptr block;
static int at_work; /* atomic */

static CUresult free_block(void)
{
	return cuMemFree_v2(block);
}

/* The slice is full by then. */
static CUresult try_to_load(void)
{
	CUresult result = cuModuleLoadData(&module, code);

	return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : result;
}

/* While the other thread's call is in the driver. */
static void fill_beside(CUresult (*make)(void))
{
	struct call call;

	begin_call(&call, make);
	fill_with_code(GIB, 0);
	CHECK_OK(end_call(&call));
	fill_with_code(GIB, 0);
}

TEST(beside_a_free)
{
	park("cuMemFree_v2@2"); /* start_lazy() makes the first */
	start_lazy("1g");
	block = take(32 * MIB);
	fill_beside(free_block);
}

TEST(beside_a_load)
{
	park("cuModuleLoadData");
	start_lazy("1g");
	fill_beside(try_to_load);
}

static void *alloc_and_free(void *none)
{
	CHECK_OK(cuCtxSetCurrent(first));
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
	struct threads threads;

	first = start_lazy("1g");
	at_work = 1;
	threads = threads_start(THREADS, alloc_and_free);
	fill_with_code(GIB, THREADS * BLOCK);
	__atomic_store_n(&at_work, 0, __ATOMIC_RELEASE);
	threads_join(threads);
	fill_with_code(GIB, THREADS * BLOCK);
}

/* -- what is reserved and not taken yet ------------------------------------------------------- */

static void *alloc_and_keep(void *none)
{
	CHECK_OK(cuCtxSetCurrent(first));
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
	first = start_lazy("1g");
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
