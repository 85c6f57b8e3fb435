/* Libraries that are unloaded: what one took is given back then, and not where the driver refuses.
 */
#include "cuda_api.h"

#include <unistd.h>

#define LIBRARY (20 * MIB)

static const char code[] = ".version 8.0\n.target sm_90\n.visible .entry nothing() { ret; }\n";

static void start(const char *limit)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	env_set("VGPU_SIM_MODULE_MIB", "20");
	cuda_start(0);
	give(take(1)); /* settles the context */
}

static CUresult load(CUlibrary *ret_library)
{
	return cuLibraryLoadData(ret_library, code, NULL, NULL, 0, NULL, NULL, 0);
}

static CUlibrary loaded(void)
{
	CUlibrary library = NULL;

	CHECK_CUDA(load(&library), CUDA_SUCCESS);
	return library;
}

/* At rest: the next comparison with NVML is due, and somebody asks for memory. */
static void rest(void)
{
	size_t available, total;

	sleep_ms(25);
	CHECK_CUDA(cuMemGetInfo_v2(&available, &total), CUDA_SUCCESS);
}

static void assert_libraries(unsigned count)
{
	CHECK_EQUAL(ledger_own(0).module, count * LIBRARY);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT + ledger_own(0).data + count * LIBRARY);
}

TEST(given_back)
{
	CUlibrary libraries[5];

	start("1g");
	for (unsigned i = 0; i < 5; i++)
		libraries[i] = loaded();
	assert_libraries(5);
	for (unsigned i = 0; i < 5; i++) {
		CHECK_CUDA(cuLibraryUnload(libraries[i]), CUDA_SUCCESS);
		rest();
		assert_libraries(4 - i);
	}
	CHECK_EQUAL(ledger_used(0), CONTEXT + HIDDEN);
}

/* How long an unloaded library stays in the books, in a slice with much room. */
static uint64_t time_of_unload_ms(void)
{
	CUlibrary library = loaded();
	size_t available, total;
	uint64_t start_ms;

	rest();
	start_ms = now_ms();
	CHECK_CUDA(cuLibraryUnload(library), CUDA_SUCCESS);
	while (ledger_own(0).module) {
		sleep_ms(1);
		CHECK_CUDA(cuMemGetInfo_v2(&available, &total), CUDA_SUCCESS);
	}
	return now_ms() - start_ms;
}

/* An unload has the books compared earlier than their turn, which is after 20 ms. On a busy machine
 * not every try shows it. */
TEST(looked_at_soon)
{
	unsigned tries = 1;

	start("16g");
	while (time_of_unload_ms() >= 15)
		CHECK(tries++ < 100);
}

/* Where the slice is full, whoever wants the room has it. */
TEST(room_at_once)
{
	CUlibrary library;
	size_t available, total;
	CUdeviceptr most;

	start("700m");
	library = loaded();
	CHECK_CUDA(cuMemGetInfo_v2(&available, &total), CUDA_SUCCESS);
	most = take(available / GRANULE * GRANULE);
	refused(LIBRARY);
	for (unsigned i = 0; i < 5; i++) {
		CUlibrary next;

		CHECK_CUDA(cuLibraryUnload(library), CUDA_SUCCESS);
		next = loaded();
		assert_libraries(1);
		library = next;
	}
	CHECK_CUDA(cuLibraryUnload(library), CUDA_SUCCESS);
	give(take(LIBRARY));
	give(most);
}

/* The driver refuses: the library is there, and charged. */
TEST(not_unloaded)
{
	CUlibrary library, none = (CUlibrary)UNTOUCHED;
	CUdeviceptr most;
	size_t available, total;

	env_set("VGPU_SIM_FAULTS", "cuLibraryUnload@1=999,cuLibraryUnload@2=999");
	start("700m");
	library = loaded();
	CHECK_CUDA(cuMemGetInfo_v2(&available, &total), CUDA_SUCCESS);
	most = take(available / GRANULE * GRANULE);
	for (unsigned i = 0; i < 2; i++) {
		CHECK_CUDA(cuLibraryUnload(library), CUDA_ERROR_UNKNOWN);
		assert_libraries(1);
		refused(LIBRARY);
		rest();
		assert_libraries(1);
	}
	CHECK_CUDA(load(&none), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(none == (CUlibrary)UNTOUCHED);
	assert_libraries(1);
	CHECK_CUDA(cuLibraryUnload(library), CUDA_SUCCESS);
	rest();
	assert_libraries(0);
	CHECK_CUDA(cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE); /* a second time */
	CHECK_CUDA(cuLibraryUnload(NULL), CUDA_ERROR_INVALID_HANDLE);
	rest();
	assert_libraries(0);
	give(take(LIBRARY));
	give(most);
	CHECK_EQUAL(ledger_own(0).data, 0);
}

/* Without a current context, too: a library is of none. */
TEST(without_context)
{
	CUlibrary library;
	CUcontext context;

	start("1g");
	library = loaded();
	CHECK_CUDA(cuCtxGetCurrent(&context), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
	CHECK_CUDA(cuLibraryUnload(library), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(context), CUDA_SUCCESS);
	rest();
	assert_libraries(0);
}

/* -- what is loaded when it is used ------------------------------------------------------------ */

/* Loads a library where no context is current, so that it takes nothing yet; the books have just
 * been compared. */
static CUlibrary put_off(void)
{
	CUlibrary library;
	CUcontext context;

	CHECK_CUDA(cuCtxGetCurrent(&context), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
	library = loaded();
	CHECK_CUDA(cuCtxSetCurrent(context), CUDA_SUCCESS);
	rest();
	return library;
}

static CUkernel kernel_of(CUlibrary library)
{
	CUkernel kernel = NULL;

	CHECK_CUDA(cuLibraryGetKernel(&kernel, library, "nothing"), CUDA_SUCCESS);
	return kernel;
}

static void launch(CUfunction function)
{
	CHECK_CUDA(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_SUCCESS);
}

/* As cudart does: the handle of a kernel does for a function's. */
static void use_kernel(CUlibrary library)
{
	launch((CUfunction)(void *)kernel_of(library));
}

static void use_function(CUlibrary library)
{
	CUfunction function;

	CHECK_CUDA(cuKernelGetFunction(&function, kernel_of(library)), CUDA_SUCCESS);
}

static void use_module(CUlibrary library)
{
	CUmodule module;
	CUfunction function;

	CHECK_CUDA(cuLibraryGetModule(&module, library), CUDA_SUCCESS);
	CHECK_CUDA(cuModuleGetFunction(&function, module, "nothing"), CUDA_SUCCESS);
}

static void use_load(CUlibrary library)
{
	CHECK_CUDA(cuFuncLoad((CUfunction)(void *)kernel_of(library)), CUDA_SUCCESS);
}

/* Whoever is quick, and then rests, has it in the books all the same: behind it comes one
 * allocation, or one synchronisation. */
TEST(loaded_at_use)
{
	static void (*const uses[])(CUlibrary) = {use_kernel, use_function, use_module, use_load};
	CUlibrary libraries[8];

	start("1g");
	for (unsigned i = 0; i < 8; i++) {
		libraries[i] = put_off();
		assert_libraries(i);
		uses[i % 4](libraries[i]);
		if (i < 4)
			take(GRANULE);
		else
			CHECK_CUDA(cuCtxSynchronize(), CUDA_SUCCESS);
		assert_libraries(i + 1);
	}
	for (unsigned i = 0; i < 8; i++)
		CHECK_CUDA(cuLibraryUnload(libraries[i]), CUDA_SUCCESS);
	rest();
	assert_libraries(0);
}

/* A handle that was another's, before that was unloaded, is as good as new. */
TEST(handle_used_again)
{
	start("1g");
	for (unsigned i = 0; i < 20; i++) {
		CUlibrary library = put_off();

		use_kernel(library);
		take(GRANULE);
		assert_libraries(1);
		CHECK_CUDA(cuLibraryUnload(library), CUDA_SUCCESS);
		rest();
		assert_libraries(0);
	}
}

/* In a context on another GPU, which is new, the same handles have it loaded once more. */
TEST(used_in_another_context)
{
	CUlibrary library;
	CUcontext other;

	env_set("VGPU_SIM_GPUS", "2x8G");
	start("1g");
	library = put_off();
	use_kernel(library);
	CHECK_CUDA(cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(other), CUDA_SUCCESS);
	give(take(1)); /* settles it */
	rest();
	CHECK_EQUAL(ledger_own(1).module, 0);
	use_kernel(library);
	take(GRANULE);
	CHECK_EQUAL(ledger_own(1).module, LIBRARY);
}
