/* Managed variables of libraries and modules: charged when their address is looked up, and refunded
 * when they end. */
#include "own_fixture.h"

#include <unistd.h>

#include "parked.h"

#define CHUNK (128 * MIB) /* by which managed memory is charged */

/* `big` takes two chunks, and `large` takes a chunk less a granule. `small` and `tiny` share a
 * granule. */
static const char variables[] =
	".version 8.0\n.target sm_90\n"
	".visible .global .attribute(.managed) .align 8 .b8 big[268435456];\n"
	".visible .global .align 8 .b8 plain[16];\n"
	".visible .entry nothing() { ret; }\n";
static const char several[] =
	".version 8.0\n.target sm_90\n"
	".visible .global .attribute(.managed) .align 8 .b8 large[132120576];\n"
	".visible .global .attribute(.managed) .align 8 .b8 small[16];\n"
	".visible .global .attribute(.managed) .align 8 .b8 tiny[4];\n";
static const char headed[] =
	".version 8.0\n.target sm_90\n"
	".visible .global .attribute(.managed) .align 8 .b8 head[16];\n"
	".visible .global .attribute(.managed) .align 8 .b8 rest[268435456];\n";

static CUlibrary library;
static CUmodule module;

static void load_library(const char *image)
{
	CHECK_OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
}

/* The charge for managed variables on a device where nothing else is allocated. */
static void assert_charged(uint64_t bytes)
{
	CHECK_EQUAL(ledger_own(0).data, bytes);
}

/* -- ways to look a variable up ---------------------------------------------------------------- */

#define WAYS 4 /* two by the library, and two by its module */

static CUresult look_up(unsigned way, const char *name, CUdeviceptr *address, size_t *bytes)
{
	unsigned size = (unsigned)UNTOUCHED;
	CUresult result;

	switch (way) {
	case 0:
		return cuLibraryGetManaged(address, bytes, library, name);
	case 1:
		return cuLibraryGetGlobal(address, bytes, library, name);
	case 2:
		return cuModuleGetGlobal_v2(address, bytes, module, name);
	default:
		result = cuModuleGetGlobal(NULL, &size, module, name);
		if (bytes && size != (unsigned)UNTOUCHED)
			*bytes = size;
		return result;
	}
}

static void unload_library(void)
{
	CHECK_OK(cuLibraryUnload(library));
}

static void start_with(const char *limit, const char *image)
{
	start(limit);
	load_library(image);
	CHECK_OK(cuLibraryGetModule(&module, library));
	assert_charged(0);
}

/* Each way charges it, and no further look-up does, whichever way. */
static void charge_once(unsigned way)
{
	CUdeviceptr address;
	size_t bytes = 0;

	start_with("2g", variables);
	CHECK_OK(look_up(way, "big", &address, &bytes));
	CHECK_EQUAL(bytes, 2 * CHUNK);
	for (unsigned i = 0; i < 2 * WAYS; i++) {
		assert_charged(2 * CHUNK);
		CHECK_OK(look_up(i % WAYS, "big", &address, &bytes));
	}
	rest(); /* NVML's figure has none of it */
	CHECK_EQUAL(ledger_own(0).module, MODULE + GRANULE);
	assert_charged(2 * CHUNK);
	unload_library();
	assert_charged(0);
}

TEST(once_by_library)
{
	charge_once(0);
}

TEST(once_by_global)
{
	charge_once(1);
}

TEST(once_by_module)
{
	charge_once(2);
}

TEST(once_by_old_version)
{
	charge_once(3);
}

/* cuGetProcAddress hands out the hook. */
TEST(by_proc_address)
{
	CUresult (*get_global)(CUdeviceptr *, size_t *, CUmodule, const char *);
	CUdeviceptr address;
	void *found = NULL;

	start_with("2g", variables);
	CHECK_OK(cuGetProcAddress_v2("cuModuleGetGlobal", &found, 13000, 0, NULL));
	get_global = (__typeof__(get_global))found;
	CHECK_OK(get_global(&address, NULL, module, "big"));
	assert_charged(2 * CHUNK);
}

/* Of the two outputs, the application may leave out one. */
TEST(outputs_left_out)
{
	CUdeviceptr address = 0;
	size_t bytes = 0;

	start_with("2g", variables);
	for (unsigned way = 0; way < WAYS - 1; way++) {
		CHECK_OK(look_up(way, "big", NULL, &bytes));
		CHECK_EQUAL(bytes, 2 * CHUNK);
		assert_charged(2 * CHUNK);
		CHECK_OK(look_up(way, "big", &address, NULL));
		CHECK(address != 0);
		assert_charged(2 * CHUNK);
		CHECK_EQUAL(look_up(way, "big", NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	}
}

TEST(not_found)
{
	CUdeviceptr address = UNTOUCHED;
	size_t bytes = UNTOUCHED;

	start_with("2g", variables);
	for (unsigned way = 0; way < WAYS; way++)
		CHECK_EQUAL(look_up(way, "absent", &address, &bytes), CUDA_ERROR_NOT_FOUND);
	CHECK_EQUAL(look_up(0, "plain", &address, &bytes), CUDA_ERROR_NOT_FOUND);
	CHECK_EQUAL(address, UNTOUCHED);
	CHECK_EQUAL(bytes, UNTOUCHED);
	assert_charged(0);
}

/* A variable in device memory is in NVML's figure. */
TEST(not_managed)
{
	CUdeviceptr address;
	size_t bytes;

	start_with("2g", variables);
	for (unsigned way = 1; way < WAYS; way++)
		CHECK_OK(look_up(way, "plain", &address, &bytes));
	assert_charged(0);
}

/* -- refusals ---------------------------------------------------------------------------------- */

/* A slice with room for one chunk of the two. Once it has room, the next look-up is granted. */
TEST(no_room)
{
	CUdeviceptr address = UNTOUCHED, filling;
	size_t bytes = UNTOUCHED;

	start_with("1g", variables);
	filling = leave(CHUNK);
	for (unsigned i = 0; i < 3 * WAYS; i++) {
		uint64_t before = ledger_own(0).data;

		CHECK_EQUAL(look_up(i % WAYS, "big", &address, &bytes), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_EQUAL(address, UNTOUCHED);
		CHECK_EQUAL(bytes, UNTOUCHED);
		CHECK_EQUAL(ledger_own(0).data, before);
	}
	give(filling);
	CHECK_OK(look_up(0, "big", &address, &bytes));
	assert_charged(2 * CHUNK);
}

/* Other allocations cannot have the memory that variables take. */
TEST(with_others)
{
	CUdeviceptr address;
	size_t available, total;

	start_with("1g", variables);
	CHECK_OK(look_up(0, "big", &address, NULL));
	CHECK_OK(cuMemGetInfo_v2(&available, &total));
	refused(available + GRANULE);
	give(take(available / GRANULE * GRANULE));
}

/* -- granules ---------------------------------------------------------------------------------- */

/* The first of two that share a granule is charged for it, together with managed blocks. */
TEST(several_in_a_granule)
{
	CUdeviceptr address, block;

	start_with("4g", several);
	CHECK_OK(look_up(0, "small", &address, NULL));
	CHECK_OK(cuMemAllocManaged(&block, CHUNK - GRANULE, CU_MEM_ATTACH_GLOBAL));
	assert_charged(CHUNK);
	CHECK_OK(look_up(0, "tiny", &address, NULL));
	assert_charged(CHUNK);
	CHECK_OK(look_up(0, "large", &address, NULL));
	assert_charged(2 * CHUNK);
	unload_library();
	assert_charged(CHUNK);
	give(block);
	assert_charged(0);
}

/* -- their end --------------------------------------------------------------------------------- */

/* The driver refuses to free a variable, which stays charged. */
TEST(freed_in_vain)
{
	CUdeviceptr address;

	start_with("2g", variables);
	CHECK_OK(look_up(0, "big", &address, NULL));
	for (unsigned i = 0; i < 3; i++) {
		CHECK_EQUAL(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(cuMemFreeAsync(address, NULL), CUDA_ERROR_INVALID_VALUE);
		assert_charged(2 * CHUNK);
	}
	CHECK_OK(look_up(1, "big", &address, NULL));
	assert_charged(2 * CHUNK);
	unload_library();
	assert_charged(0);
}

/* Of two libraries, the one that is unloaded is refunded. */
TEST(one_of_two_unloaded)
{
	CUlibrary first;
	CUdeviceptr address;

	start_with("4g", several);
	CHECK_OK(look_up(0, "large", &address, NULL));
	first = library;
	load_library(variables);
	CHECK_OK(look_up(0, "big", &address, NULL));
	assert_charged(3 * CHUNK);
	CHECK_OK(cuLibraryUnload(first));
	assert_charged(2 * CHUNK);
	CHECK_EQUAL(cuLibraryUnload(first), CUDA_ERROR_INVALID_HANDLE);
	assert_charged(2 * CHUNK);
	unload_library();
	assert_charged(0);
}

/* The driver refuses to unload the library. */
TEST(not_unloaded)
{
	CUdeviceptr address;

	env_set("VGPU_SIM_FAULTS", "cuLibraryUnload@1=999");
	start_with("2g", variables);
	CHECK_OK(look_up(0, "big", &address, NULL));
	CHECK_EQUAL(cuLibraryUnload(library), CUDA_ERROR_UNKNOWN);
	assert_charged(2 * CHUNK);
	unload_library();
	assert_charged(0);
}

/* The driver does not answer. The next unload finds that the variable is gone. */
TEST(unanswered)
{
	CUdeviceptr address;

	env_set("VGPU_SIM_FAULTS", "cuPointerGetAttribute@1=201");
	start_with("2g", variables);
	CHECK_OK(look_up(0, "big", &address, NULL));
	unload_library();
	assert_charged(2 * CHUNK);
	load_library(code);
	unload_library();
	assert_charged(0);
}

TEST(module_unloaded)
{
	CUdeviceptr address;

	start("2g");
	CHECK_OK(cuModuleLoadData(&module, variables));
	CHECK_OK(look_up(2, "big", &address, NULL));
	assert_charged(2 * CHUNK);
	CHECK_OK(cuModuleUnload(module));
	assert_charged(0);
}

/* A module ends with its context, and a library does not. */
static void end_with(CUresult (*end)(CUdevice))
{
	CUdeviceptr address;

	start("4g");
	load_library(several);
	CHECK_OK(look_up(0, "large", &address, NULL));
	CHECK_OK(cuModuleLoadData(&module, variables));
	CHECK_OK(look_up(2, "big", &address, NULL));
	assert_charged(3 * CHUNK);
	CHECK_OK(end(0));
	assert_charged(CHUNK);
	unload_library();
	assert_charged(0);
}

TEST(context_reset)
{
	end_with(cuDevicePrimaryCtxReset_v2);
}

TEST(context_released)
{
	end_with(cuDevicePrimaryCtxRelease_v2);
}

TEST(context_destroyed)
{
	CUdeviceptr address;
	CUcontext context;

	start("4g");
	CHECK_OK(cuCtxCreate_v2(&context, 0, 0));
	CHECK_OK(cuModuleLoadData(&module, variables));
	CHECK_OK(look_up(2, "big", &address, NULL));
	assert_charged(2 * CHUNK);
	CHECK_OK(cuCtxDestroy_v2(context));
	assert_charged(0);
}

/* Again and again, also at addresses that other variables had before. */
TEST(in_turns)
{
	CUdeviceptr address;

	start("4g");
	for (unsigned i = 0; i < 20; i++) {
		bool is_big = i % 3 == 0;

		load_library(is_big ? variables : several);
		CHECK_OK(look_up(0, is_big ? "big" : "small", &address, NULL));
		assert_charged(is_big ? 2 * CHUNK : CHUNK);
		unload_library();
		assert_charged(0);
	}
}

/* -- threads ----------------------------------------------------------------------------------- */

static CUcontext shared_context;

static CUresult look_up_beside(void)
{
	CUdeviceptr address;

	CHECK_OK(cuCtxSetCurrent(shared_context));
	return look_up(0, "big", &address, NULL);
}

/* Two threads look up the same variable, and it is charged once. */
TEST(by_two_threads)
{
	struct call call;

	park("cuLibraryGetManaged@1");
	start_with("2g", variables);
	CHECK_OK(cuCtxGetCurrent(&shared_context));
	begin_call(&call, look_up_beside);
	CHECK_OK(look_up_beside());
	assert_charged(2 * CHUNK);
	CHECK_OK(end_call(&call));
	assert_charged(2 * CHUNK);
	unload_library();
	assert_charged(0);
}

static CUresult unload_beside(void)
{
	return cuLibraryUnload(library);
}

/* A library is unloaded. While the driver is asked about its variable, a new library gets the
 * variable's address, and its variable is looked up. */
static const struct reuse {
	const char *name, *park;
	const char *image, *variable; /* of the first library */
} reuses[] = {
	{"used_again_before_answer", "cuPointerGetAttribute@1", variables, "big"},
	{"used_again_after_answer", "cuPointerGetAttribute@1:done", variables, "big"},
	{"larger_before_answer", "cuPointerGetAttribute@1", headed, "head"},
	{"larger_after_answer", "cuPointerGetAttribute@1:done", headed, "head"},
};

static void use_again(const struct reuse *row)
{
	CUdeviceptr before, address;
	struct call call;

	park(row->park);
	start_with("4g", row->image);
	CHECK_OK(look_up(0, row->variable, &before, NULL));
	begin_call(&call, unload_beside);
	load_library(variables);
	CHECK_OK(look_up(0, "big", &address, NULL));
	CHECK_EQUAL(address, before);
	CHECK_OK(end_call(&call));
	assert_charged(2 * CHUNK);
	unload_library();
	assert_charged(0);
}

TEST_TABLE(reuses, use_again);

/* -- without a context ------------------------------------------------------------------------- */

/* The slice has only the machine's second GPU. A variable that is looked up without a context is
 * charged there. */
TEST(without_context)
{
	CUdeviceptr address;

	env_set("VGPU_SIM_GPUS", "2x8G");
	policy_write(gpu_uuid(1), "memory = 2g\n");
	cuda_start(0);
	load_library(variables);
	CHECK_OK(cuCtxSetCurrent(NULL));
	CHECK_OK(look_up(0, "big", &address, NULL));
	CHECK_EQUAL(ledger_own(1).data, 2 * CHUNK);
	unload_library();
	CHECK_EQUAL(ledger_own(1).data, 0);
}

/* -- forks ------------------------------------------------------------------------------------- */

/* A child has none of its parent's variables, and leaves its parent's charge alone. */
TEST(forked)
{
	CUdeviceptr address;
	pid_t child;

	start_with("2g", variables);
	CHECK_OK(look_up(0, "big", &address, NULL));
	child = fork();
	if (child == 0) {
		CHECK(cuLibraryUnload(library) != CUDA_SUCCESS);
		CHECK(cuDevicePrimaryCtxReset_v2(0) != CUDA_SUCCESS);
		exit(0);
	}
	expect_ended(child);
	assert_charged(2 * CHUNK);
	unload_library();
	assert_charged(0);
}
