/* Libraries that are unloaded: what one took is given back then, and not where the driver refuses.
 */
#include "own_fixture.h"

#include <unistd.h>

static CUresult load_library(CUlibrary *ret_library)
{
	return cuLibraryLoadData(ret_library, code, NULL, NULL, 0, NULL, NULL, 0);
}

static CUlibrary loaded(void)
{
	CUlibrary library = NULL;

	CHECK_OK(load_library(&library));
	return library;
}

static void assert_libraries(unsigned count)
{
	CHECK_EQUAL(ledger_own(0).module, count * MODULE);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT + ledger_own(0).data + count * MODULE);
}

/* How long an unloaded library stays in the books, in a slice with much room. */
static uint64_t time_of_unload_ms(void)
{
	CUlibrary library = loaded();
	size_t available, total;
	uint64_t start_ms;

	rest();
	start_ms = now_ms();
	CHECK_OK(cuLibraryUnload(library));
	while (ledger_own(0).module) {
		sleep_ms(1);
		CHECK_OK(cuMemGetInfo_v2(&available, &total));
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
	CUdeviceptr most;

	start("700m");
	library = loaded();
	most = leave(0);
	refused(MODULE);
	for (unsigned i = 0; i < 5; i++) {
		CUlibrary next;

		CHECK_OK(cuLibraryUnload(library));
		next = loaded();
		assert_libraries(1);
		library = next;
	}
	CHECK_OK(cuLibraryUnload(library));
	give(take(MODULE));
	give(most);
}

/* The driver refuses: the library is there, and charged. */
TEST(not_unloaded)
{
	CUlibrary library, none = (CUlibrary)UNTOUCHED;
	CUdeviceptr most;

	env_set("VGPU_SIM_FAULTS", "cuLibraryUnload@1=999,cuLibraryUnload@2=999");
	start("700m");
	library = loaded();
	most = leave(0);
	for (unsigned i = 0; i < 2; i++) {
		CHECK_CUDA(cuLibraryUnload(library), CUDA_ERROR_UNKNOWN);
		assert_libraries(1);
		refused(MODULE);
		rest();
		assert_libraries(1);
	}
	CHECK_CUDA(load_library(&none), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(none == (CUlibrary)UNTOUCHED);
	assert_libraries(1);
	CHECK_OK(cuLibraryUnload(library));
	rest();
	assert_libraries(0);
	CHECK_CUDA(cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE); /* a second time */
	CHECK_CUDA(cuLibraryUnload(NULL), CUDA_ERROR_INVALID_HANDLE);
	rest();
	assert_libraries(0);
	give(take(MODULE));
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
	CHECK_OK(cuCtxGetCurrent(&context));
	CHECK_OK(cuCtxSetCurrent(NULL));
	CHECK_OK(cuLibraryUnload(library));
	CHECK_OK(cuCtxSetCurrent(context));
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

	CHECK_OK(cuCtxGetCurrent(&context));
	CHECK_OK(cuCtxSetCurrent(NULL));
	library = loaded();
	CHECK_OK(cuCtxSetCurrent(context));
	rest();
	return library;
}

static CUkernel kernel_of(CUlibrary library)
{
	CUkernel kernel = NULL;

	CHECK_OK(cuLibraryGetKernel(&kernel, library, "nothing"));
	return kernel;
}

static void launch(CUfunction function)
{
	CHECK_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

/* As cudart does: the handle of a kernel does for a function's. */
static void use_kernel(CUlibrary library)
{
	launch((CUfunction)(void *)kernel_of(library));
}

static void use_function(CUlibrary library)
{
	CUfunction function;

	CHECK_OK(cuKernelGetFunction(&function, kernel_of(library)));
}

static void use_module(CUlibrary library)
{
	CUmodule module;
	CUfunction function;

	CHECK_OK(cuLibraryGetModule(&module, library));
	CHECK_OK(cuModuleGetFunction(&function, module, "nothing"));
}

static void use_load(CUlibrary library)
{
	CHECK_OK(cuFuncLoad((CUfunction)(void *)kernel_of(library)));
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
			CHECK_OK(cuCtxSynchronize());
		assert_libraries(i + 1);
	}
	for (unsigned i = 0; i < 8; i++)
		CHECK_OK(cuLibraryUnload(libraries[i]));
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
		CHECK_OK(cuLibraryUnload(library));
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
	CHECK_OK(cuDevicePrimaryCtxRetain(&other, 1));
	CHECK_OK(cuCtxSetCurrent(other));
	give(take(1)); /* settles it */
	rest();
	CHECK_EQUAL(ledger_own(1).module, 0);
	use_kernel(library);
	take(GRANULE);
	CHECK_EQUAL(ledger_own(1).module, MODULE);
}
