/* Libraries that are unloaded: what one took is given back then, and not where the driver refuses.
 */
#include "own_acts.h"

#include <unistd.h>

#include "parked.h"

static CUlibrary loaded(void)
{
	CUlibrary library = NULL;

	CHECK_OK(cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0));
	return library;
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

/* -- what is loaded when it is used ------------------------------------------------------------ */

static CUkernel kernel_of(CUlibrary library)
{
	CUkernel kernel = NULL;

	CHECK_OK(cuLibraryGetKernel(&kernel, library, "nothing"));
	return kernel;
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

/* -- rows of calls ---------------------------------------------------------------------------- */

static CUlibrary libraries[ACT_THINGS];

/* Loads a library where no context is current, so that it takes nothing yet; then a comparison is
 * made. */
static CUresult put_off(const struct act_call *call)
{
	CUcontext context;

	CHECK_OK(cuCtxGetCurrent(&context));
	CHECK_OK(cuCtxSetCurrent(NULL));
	libraries[call->thing] = loaded();
	CHECK_OK(cuCtxSetCurrent(context));
	rest();
	return CUDA_SUCCESS;
}

/* Uses it in one of four ways. */
static CUresult use_library(const struct act_call *call)
{
	static void (*const uses[])(CUlibrary) = {use_kernel, use_function, use_module, use_load};

	uses[call->at](libraries[call->thing]);
	return CUDA_SUCCESS;
}

static ACT(unload_library, cuLibraryUnload(libraries[call->thing]));
static ACT(synchronise_all, cuCtxSynchronize());

/* clang-format off */
#define LIBRARY(thing)        LOAD(thing, 4)
#define PUT_OFF(thing)        {put_off, thing, NONE, 0, 0}
#define USE(thing, way)       {use_library, thing, NONE, way, 0}
#define UNLOAD_UNUSED(thing)  {unload_library, thing, NONE, 0, 0} /* that was put off */
#define SYNCHRONISE           {synchronise_all, NONE, NONE, 0, 0}
#define NO_HANDLE             CUDA_ERROR_INVALID_HANDLE

/* The code that a use loads is charged by the next allocation, or the next synchronisation. */
#define USED(way, before, after)                                                          \
	{PUT_OFF(A), before, 0}, {USE(A, way), UNCHECKED}, {TAKE(B, 2), after, 2}, {GIVE(B), after, 0}, \
		{UNLOAD_UNUSED(A), UNCHECKED}, {REST, before, 0}, {PUT_OFF(A), before, 0}, \
		{USE(A, way), UNCHECKED}, {SYNCHRONISE, after, 0}

/* A slice of 700 MiB has room for 172 MiB. */
static const struct own_row rows[] = {
	/* Whoever wants the room of a library that is unloaded has it, also where the slice is full. */
	{"room_at_once", "700m", .acts = {
		{LIBRARY(A), 20, 0}, {LEAVE(B, 0), 20, 152}, {TAKE(C, 20), 20, 152, NO_ROOM},
		{UNLOAD(A), UNCHECKED}, {LIBRARY(A), 20, 152}, {UNLOAD(A), UNCHECKED},
		{LIBRARY(A), 20, 152}, {UNLOAD(A), UNCHECKED}, {LIBRARY(A), 20, 152},
		{UNLOAD(A), UNCHECKED}, {TAKE(C, 20), 0, 172}, {GIVE(C), 0, 152}, {GIVE(B), 0, 0}}},
	/* The driver refuses to unload it: the library is there, and charged. */
	{"not_unloaded", "700m", .faults = "cuLibraryUnload@1=999,cuLibraryUnload@2=999", .acts = {
		{LIBRARY(A), 20, 0}, {LEAVE(B, 0), 20, 152}, {UNLOAD(A), 20, 152, UNKNOWN},
		{TAKE(C, 20), 20, 152, NO_ROOM}, {REST, 20, 152}, {UNLOAD(A), 20, 152, UNKNOWN},
		{TAKE(C, 20), 20, 152, NO_ROOM}, {REST, 20, 152}, {LIBRARY(C), 20, 152, NO_ROOM},
		{UNLOAD(A), UNCHECKED}, {REST, 0, 152}, {UNLOAD(A), 0, 152, NO_HANDLE},
		{UNLOAD_UNUSED(NONE), 0, 152, NO_HANDLE}, {REST, 0, 152}, {TAKE(C, 20), 0, 172},
		{GIVE(C), 0, 152}, {GIVE(B), 0, 0}}},
	/* A library is of no context. */
	{"without_context", "1g", .acts = {
		{LIBRARY(A), 20, 0}, {LEAVE_CONTEXT, 20, 0}, {UNLOAD(A), UNCHECKED},
		{ENTER_PRIMARY, UNCHECKED}, {REST, 0, 0}}},
	{"loaded_at_use", "1g", .acts = {USED(0, 0, 20), USED(1, 20, 40), USED(2, 40, 60), USED(3, 60, 80)}},
	/* A handle that another library had before that was unloaded is as good as new. */
	{"handle_used_again", "1g", .rounds = 20, .acts = {
		{PUT_OFF(A), 0, 0}, {USE(A, 0), UNCHECKED}, {TAKE(B, 2), 20, 2}, {GIVE(B), 20, 0},
		{UNLOAD_UNUSED(A), UNCHECKED}, {REST, 0, 0}}},
};
TEST_TABLE(rows, own_play);
/* clang-format on */

#define BIG (100 * MIB)

/* Libraries that take BIG, and MODULE for code, when their variable is first asked for. One of them
 * may be beyond the limit. It is refused, and so is the next one. */
TEST(variables)
{
	CUlibrary library[8];
	CUdeviceptr address;
	char text[256];
	CUcontext context = start("1g");

	snprintf(text, sizeof(text),
		 ".version 8.0\n.target sm_90\n.visible .global .align 8 .b8 big[%u];\n",
		 (unsigned)BIG);
	CHECK_OK(cuCtxSetCurrent(NULL));
	for (unsigned i = 0; i < 8; i++)
		CHECK_OK(cuLibraryLoadData(&library[i], text, NULL, NULL, 0, NULL, NULL, 0));
	CHECK_OK(cuCtxSetCurrent(context));
	for (unsigned i = 0; i < 8; i++) {
		bool fits = outside_used(0) + BIG + MODULE <= GIB;

		CHECK_EQUAL(cuLibraryGetGlobal(&address, NULL, library[i], "big"),
			    fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_AT_MOST(outside_used(0), GIB + BIG + MODULE);
	}
	CHECK_OK(cuLibraryGetGlobal(&address, NULL, library[0], "big"));
	for (unsigned i = 0; i < 8; i++)
		CHECK_OK(cuLibraryUnload(library[i]));
	rest();
	assert_books(0, 0);
}

/* Libraries ask for the function of a kernel before each launch. Only the first answer may have
 * loaded code, so the others make no comparison due. 300 comparisons would take six seconds
 * otherwise; the last would wait until the alarm. */
TEST(asked_again)
{
	CUfunction function;
	CUkernel kernel;

	park("nvmlDeviceGetComputeRunningProcesses_v3@300");
	start("16g");
	kernel = kernel_of(loaded());
	alarm(20);
	for (unsigned i = 0; i < 1000; i++) {
		CHECK_OK(cuKernelGetFunction(&function, kernel));
		CHECK_OK(cuCtxSynchronize());
	}
}

/* In a context on another GPU, which is new, the same handles have it loaded once more. */
TEST(used_in_another_context)
{
	CUlibrary library;

	env_set("VGPU_SIM_GPUS", "2x8G");
	start("1g");
	put_off(&(struct act_call){.thing = A});
	library = libraries[A];
	use_kernel(library);
	cuda_start(1);
	give(take(1)); /* settles it */
	rest();
	CHECK_EQUAL(ledger_own(1).module, 0);
	use_kernel(library);
	take(GRANULE);
	CHECK_EQUAL(ledger_own(1).module, MODULE);
}
