/*
 * Green contexts: what they take themselves, what is made in them, which is the primary context's,
 * and what a reset of that leaves of them and of everything else.
 */
#include "own_fixture.h"

#include <unistd.h>

/* What the device may still hold of a process that has no context any more. */
#define STRAY (4 * MIB)

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

TEST(green_one)
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
TEST(green_many)
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
TEST(green_asked_again)
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
TEST(green_beside_created)
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

TEST(green_refused)
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

TEST(green_rejected)
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
	CHECK_EQUAL(ledger_own(0).total, 0);
}

static void start_without_context(const char *limit)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
}

/* A green context makes the primary context, and ends it. The slice is charged what that has. */
TEST(green_makes_the_primary)
{
	CUgreenCtx one, other;
	CUcontext context;

	start_without_context("1g");
	for (unsigned round = 0; round < 3; round++) {
		context = green(8, &one);
		CHECK_CUDA(cuCtxSetCurrent(context), CUDA_SUCCESS);
		take(300 * MIB);
		rest();
		assert_books(4 * MIB, 300 * MIB);
		CHECK_EQUAL(ledger_own(0).offset, HIDDEN);
		refused(300 * MIB);
		green(8, &other);
		CHECK_CUDA(cuGreenCtxDestroy(other), CUDA_SUCCESS);
		CHECK_EQUAL(ledger_own(0).data, 300 * MIB);
		CHECK_CUDA(cuGreenCtxDestroy(one), CUDA_SUCCESS);
		CHECK_EQUAL(ledger_own(0).total, 0);
		CHECK_AT_MOST(outside_used(0), STRAY);
	}
}

/* The application has the context from a stream only. */
TEST(green_by_its_stream)
{
	CUcontext primary = start("1g"), context;
	CUgreenCtx one;
	CUstream stream;

	CHECK_CUDA(cuGreenCtxCreate(&one, share(8), 0, 1), CUDA_SUCCESS);
	CHECK_CUDA(cuGreenCtxStreamCreate(&stream, one, 1, 0), CUDA_SUCCESS);
	CHECK_CUDA(cuStreamGetCtx(stream, &context), CUDA_SUCCESS);
	take_in(context, primary, 100 * MIB);
	rest();
	assert_books(4 * MIB, 100 * MIB);
	CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).total, 0);
	CHECK_AT_MOST(outside_used(0), STRAY);
}

/* The application releases the primary context, which ends with the last green context. */
TEST(green_outlives_a_release)
{
	CUcontext primary = start("1g");
	CUgreenCtx one;

	green(8, &one);
	take(100 * MIB);
	CHECK_CUDA(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	rest();
	assert_books(4 * MIB, 100 * MIB);
	CHECK_CUDA(cuGreenCtxDestroy(one), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(primary), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CHECK_EQUAL(ledger_own(0).total, 0);
	CHECK_AT_MOST(outside_used(0), STRAY);
}

/* There is no room for the primary context. */
TEST(green_without_room)
{
	CUgreenCtx one = (CUgreenCtx)UNTOUCHED;
	CUdevResourceDesc desc;

	start_without_context("400m");
	desc = share(8);
	CHECK_CUDA(cuGreenCtxCreate(&one, desc, 0, 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(one == (CUgreenCtx)UNTOUCHED);
	CHECK_EQUAL(ledger_own(0).total, 0);
	CHECK_AT_MOST(outside_used(0), STRAY);
}

/* Destroying fails once: what is made in it then is the primary context's all the same. */
TEST(green_not_destroyed)
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
TEST(green_without_current)
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
TEST(green_and_others)
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
TEST(reset_with_everything)
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
