/*
 * Green contexts: what they take themselves, what is made in them, which is the primary context's,
 * and what a reset of that leaves of them and of everything else.
 */
#include "own_acts.h"

#include <unistd.h>

/* -- green contexts --------------------------------------------------------------------------- */

#define GREENS 100 /* of 4 MiB each */

static CUdevResourceDesc share(unsigned multiprocessors)
{
	CUdevResource all, part;
	CUdevResourceDesc desc = NULL;
	unsigned groups = 1;

	CHECK_OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	CHECK_OK(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, multiprocessors));
	CHECK_OK(cuDevResourceGenerateDesc(&desc, &part, 1));
	return desc;
}

static CUcontext green(unsigned multiprocessors, CUgreenCtx *ret_green)
{
	CUcontext context = NULL;

	CHECK_OK(cuGreenCtxCreate(ret_green, share(multiprocessors), 0, 1));
	CHECK_OK(cuCtxFromGreenCtx(&context, *ret_green));
	return context;
}

static CUdeviceptr take_in(CUcontext context, CUcontext back, uint64_t bytes)
{
	CUdeviceptr address;

	CHECK_OK(cuCtxSetCurrent(context));
	address = take(bytes);
	CHECK_OK(cuCtxSetCurrent(back));
	return address;
}

/* -- rows of calls ---------------------------------------------------------------------------- */

static CUgreenCtx greens[ACT_THINGS];
static CUcontext contexts[ACT_THINGS]; /* of the green contexts */

static CUresult create_green(const struct act_call *call)
{
	CUgreenCtx one = (CUgreenCtx)UNTOUCHED;
	CUresult result = cuGreenCtxCreate(&one, share((unsigned)call->size), 0, 1);

	CHECK((result == CUDA_SUCCESS) == (one != (CUgreenCtx)UNTOUCHED));
	if (result == CUDA_SUCCESS)
		greens[call->thing] = one;
	return result;
}

static CUresult make_green(const struct act_call *call)
{
	CUresult result = create_green(call);

	if (result == CUDA_SUCCESS)
		CHECK_OK(cuCtxFromGreenCtx(&contexts[call->thing], greens[call->thing]));
	return result;
}

static CUresult make_stream(const struct act_call *call)
{
	CUstream stream;

	CHECK_OK(cuGreenCtxStreamCreate(&stream, greens[call->thing], 1, 0));
	return cuStreamGetCtx(stream, &contexts[call->thing]);
}

static ACT(destroy_green, cuGreenCtxDestroy(greens[call->thing]));
static ACT(enter_green, cuCtxSetCurrent(contexts[call->in]));

static CUresult take_in_green(const struct act_call *call)
{
	CUcontext back;
	CUresult result;

	CHECK_OK(cuCtxGetCurrent(&back));
	CHECK_OK(cuCtxSetCurrent(contexts[call->in]));
	result = own_take(call);
	CHECK_OK(cuCtxSetCurrent(back));
	return result;
}

/* clang-format off */
#define CREATE(green, sms)         {create_green, green, NONE, 0, sms}
#define GREEN(green, sms)          {make_green, green, NONE, 0, sms} /* and asks for its context */
#define STREAM_CONTEXT(green)      {make_stream, green, NONE, 0, 0} /* asks a stream for it */
#define DESTROY(green)             {destroy_green, green, NONE, 0, 0}
#define ENTER(green)               {enter_green, NONE, green, 0, 0}
#define TAKE_IN(green, thing, mib) {take_in_green, thing, green, 0, mib}

#define DESTROYED CUDA_ERROR_CONTEXT_IS_DESTROYED
#define NO_HANDLE CUDA_ERROR_INVALID_HANDLE

static const struct own_row rows[] = {
	/* The primary context has what was made in a green context. The second one fits into what
	 * the first one took. */
	{"green_one", "1g", .acts = {
		{GREEN(A, 128), 16, 0}, {TAKE_IN(A, A, 30), 16, 30}, {TAKE_IN(A, B, 10), 16, 40},
		{DESTROY(A), 16, 40}, {DESTROY(A), 16, 40, NO_HANDLE}, {REST, 16, 40},
		{GIVE(A), 16, 10}, {GREEN(B, 8), 16, 10}, {TAKE_IN(B, C, 6), 16, 16},
		{GIVE(B), 16, 6}, {RESET, ENDED}}},
	/* A slice of 700 MiB has room for 172 MiB. */
	{"green_refused", "700m", .acts = {
		{LEAVE(A, 10), 0, 162}, {CREATE(A, 128), 0, 162, NO_ROOM},
		{CREATE(A, 128), 0, 162, NO_ROOM}, {CREATE(A, 128), 0, 162, NO_ROOM}, {GIVE(A), 0, 0},
		{LEAVE(A, 40), 0, 132}, {CREATE(A, 128), 16, 132}, {GIVE(A), 16, 0}}},
	/* A green context makes the primary context, and ends it. */
	{"green_makes_the_primary", "1g", .without_context = true, .rounds = 3, .acts = {
		{GREEN(A, 8), UNCHECKED}, {ENTER(A), UNCHECKED}, {TAKE(A, 300), UNCHECKED},
		{REST, 4, 300}, {TAKE(B, 300), 4, 300, NO_ROOM}, {GREEN(B, 8), 8, 300},
		{DESTROY(B), 8, 300}, {DESTROY(A), ENDED}}},
	/* The application has the context from a stream only. */
	{"green_by_its_stream", "1g", .acts = {
		{CREATE(A, 8), 4, 0}, {STREAM_CONTEXT(A), 4, 0}, {TAKE_IN(A, A, 100), 4, 100},
		{REST, 4, 100}, {RESET, ENDED}}},
	/* The application releases the primary context, which ends with the last green context. */
	{"green_outlives_a_release", "1g", .acts = {
		{GREEN(A, 8), 4, 0}, {TAKE(A, 100), 4, 100}, {RELEASE, 4, 100}, {REST, 4, 100},
		{DESTROY(A), ENDED}, {ENTER_PRIMARY, ENDED, 0, DESTROYED}}},
	/* There is no room for the primary context. */
	{"green_without_room", "400m", .without_context = true, .acts = {
		{CREATE(A, 8), ENDED, 0, NO_ROOM}}},
	/* Destroying fails once. The primary context has what is made after that, too. */
	{"green_not_destroyed", "1g", .faults = "cuGreenCtxDestroy@1=999", .acts = {
		{GREEN(A, 8), 4, 0}, {DESTROY(A), 4, 0, UNKNOWN}, {TAKE_IN(A, A, 10), 4, 10},
		{RESET, ENDED}}},
	/* Without a current context, only the comparison with NVML finds what it takes. */
	{"green_without_current", "1g", .acts = {
		{LEAVE_CONTEXT, 0, 0}, {CREATE(A, 8), COVERED}, {ENTER_PRIMARY, COVERED},
		{REST, 4, 0}}},
	/* The primary context has the code that is loaded in a green context, and its stack. */
	{"green_and_others", "1g", .acts = {
		{GREEN(A, 8), 4, 0}, {ENTER(A), 4, 0}, {LOAD(B, 1), 24, 0}, {SET_STACK(1536), 156, 0},
		{DESTROY(A), 156, 0}, {ENTER_PRIMARY, 156, 0}, {SET_STACK(1536), 156, 0},
		{REST, 156, 0}, {UNLOAD(B), UNCHECKED}, {SET_STACK(1024), UNCHECKED}, {REST, 4, 0}}},
};
TEST_TABLE(rows, own_play);
/* clang-format on */

/* -- many of them, and wrong ones ------------------------------------------------------------- */

static void reset(void)
{
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	CHECK_EQUAL(ledger_own(0).total, 0);
}

/* All kinds of things in more green contexts than anybody needs, twice over. */
TEST(green_many)
{
	static const CUDA_ARRAY_DESCRIPTOR flat = {1024, 512, CU_AD_FORMAT_FLOAT, 1};
	CUcontext primary = start("2g"), context;
	CUgreenCtx many[GREENS];
	CUarray array;

	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < GREENS; i++) {
			context = green(8, &many[i]);
			assert_books((i + 1) * 4 * MIB, i * 4 * MIB);
			take_in(context, primary, 2 * MIB);
			CHECK_OK(cuCtxSetCurrent(context));
			CHECK_OK(cuArrayCreate_v2(&array, &flat));
			CHECK_OK(cuCtxSetCurrent(primary));
		}
		for (unsigned i = 0; i < GREENS; i += round + 1)
			CHECK_OK(cuGreenCtxDestroy(many[i]));
		rest();
		assert_books(GREENS * 4 * MIB, GREENS * 4 * MIB);
		CHECK_OK(cuDevicePrimaryCtxReset(0));
		CHECK_EQUAL(ledger_own(0).total, 0);
		primary = cuda_start(0);
		rest();
		assert_books(0, 0);
	}
}

/* The same context, asked for time and again, is one. */
TEST(green_asked_again)
{
	CUcontext primary = start("1g"), context, first, other;
	CUgreenCtx a, b;

	first = green(8, &a);
	for (unsigned i = 0; i < 200; i++) {
		CHECK_OK(cuCtxFromGreenCtx(&context, a));
		CHECK(context == first);
	}
	other = green(8, &b);
	take_in(first, primary, 2 * MIB);
	take_in(other, primary, 2 * MIB);
	assert_books(8 * MIB, 4 * MIB);
	reset();
}

/* Contexts that are none of these keep their own. */
TEST(green_beside_created)
{
	CUcontext primary = start("3g"), created, context;
	CUgreenCtx one;

	context = green(8, &one);
	CHECK_OK(cuCtxCreate_v2(&created, 0, 0));
	take_in(created, primary, 20 * MIB);
	take_in(context, primary, 10 * MIB);
	take_in(primary, primary, 4 * MIB);
	CHECK_EQUAL(ledger_own(0).data, 34 * MIB);
	CHECK_OK(cuCtxDestroy_v2(created));
	assert_books(4 * MIB, 14 * MIB);
	reset();
}

TEST(green_rejected)
{
	CUcontext context = (CUcontext)UNTOUCHED;
	CUgreenCtx one = (CUgreenCtx)UNTOUCHED;
	CUdevResourceDesc desc;

	env_set("VGPU_SIM_FAULTS", "cuGreenCtxCreate@1=999,cuCtxFromGreenCtx@1=999,"
				   "cuGreenCtxDestroy@1=999");
	start("1g");
	desc = share(8);
	CHECK_EQUAL(cuGreenCtxCreate(&one, desc, 0, 1), CUDA_ERROR_UNKNOWN);
	CHECK_EQUAL(cuGreenCtxCreate(&one, desc, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuGreenCtxCreate(&one, desc, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuGreenCtxCreate(NULL, desc, 0, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuGreenCtxCreate(&one, desc, 7, 1), CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQUAL(cuGreenCtxCreate(&one, desc, -1, 1), CUDA_ERROR_INVALID_DEVICE);
	CHECK(one == (CUgreenCtx)UNTOUCHED);
	CHECK_EQUAL(cuCtxFromGreenCtx(&context, NULL), CUDA_ERROR_UNKNOWN);
	CHECK_EQUAL(cuCtxFromGreenCtx(&context, NULL), CUDA_ERROR_INVALID_HANDLE);
	CHECK(context == (CUcontext)UNTOUCHED);
	CHECK_EQUAL(cuGreenCtxDestroy(NULL), CUDA_ERROR_UNKNOWN);
	assert_books(0, 0);
	CHECK_OK(cuGreenCtxCreate(&one, desc, 0, 1));
	CHECK_EQUAL(cuCtxFromGreenCtx(NULL, one), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuGreenCtxDestroy(one));
	reset();
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
	CHECK_OK(cuMemAllocManaged(&address, 5 * MIB, CU_MEM_ATTACH_GLOBAL));
	CHECK_OK(cuArray3DCreate_v2(&array, &flat));
	CHECK_OK(cuMipmappedArrayCreate(&mips, &flat, 11));
	CHECK_OK(cuStreamCreate(&stream, 0));
	for (unsigned i = 0; i < 4; i++)
		CHECK_OK(load(i, &loaded));
	CHECK_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1536));
	context = green(64, &one);
	take_in(context, primary, 12 * MIB);
}

/* A reset ends all but what belongs to no context: pools, and memory with a handle. */
TEST(reset_with_everything)
{
	const CUmemAllocationProp prop = MEMORY_OF_GPU_0;
	CUmemGenericAllocationHandle handle;
	CUcontext primary = start("3g");
	CUdeviceptr pooled;

	CHECK_OK(cuMemAllocAsync(&pooled, MIB, NULL));
	CHECK_OK(cuMemCreate(&handle, PHYSICAL, &prop, 0));
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
		CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
		usage = ledger_own(0);
		CHECK_EQUAL(usage.data, POOL + PHYSICAL);
		CHECK_EQUAL(usage.total, usage.data);
		CHECK_AT_MOST(outside_used(0), usage.data + STRAY);
		primary = cuda_start(0);
		rest();
		assert_books(0, POOL + PHYSICAL);
	}
	CHECK_OK(cuMemRelease(handle));
	assert_books(0, POOL);
}
