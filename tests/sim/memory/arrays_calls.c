/*
 * The functions that make and end arrays: all of them charge and refund, and what they refuse, or
 * do by halves, or without taking memory, leaves the charge as it was.
 */
#include "arrays_fixture.h"

#include <unistd.h>

/* -- by every door ---------------------------------------------------------------------------- */

static CUresult by_door(unsigned door, size_t rows, CUarray *array)
{
	const CUDA_ARRAY_DESCRIPTOR flat = {1024, rows, FLOAT, 1};
	const CUDA_ARRAY_DESCRIPTOR_v1 flat_v1 = {1024, (unsigned)rows, FLOAT, 1};
	const CUDA_ARRAY3D_DESCRIPTOR any = {1024, rows, 0, FLOAT, 1, 0};
	const CUDA_ARRAY3D_DESCRIPTOR_v1 any_v1 = {1024, (unsigned)rows, 0, FLOAT, 1, 0};

	switch (door) {
	case 0:
		return cuArrayCreate(array, &flat_v1);
	case 1:
		return cuArrayCreate_v2(array, &flat);
	case 2:
		return cuArray3DCreate(array, &any_v1);
	case 3:
		return cuArray3DCreate_v2(array, &any);
	default:
		return cuMipmappedArrayCreate((CUmipmappedArray *)array, &any, 1);
	}
}

#define DOORS 5

static CUresult end_by_door(unsigned door, CUarray array)
{
	return door < 4 ? cuArrayDestroy(array)
			: cuMipmappedArrayDestroy((CUmipmappedArray)(void *)array);
}

TEST(by_each_door)
{
	CUarray arrays[DOORS], refused_one = (CUarray)UNTOUCHED;

	start("600m"); /* 72 MiB are left */
	for (unsigned door = 0; door < DOORS; door++) {
		CHECK_OK(by_door(door, 2048, &arrays[door]));
		assert_data((door + 1) * 8 * MIB);
	}
	for (unsigned door = 0; door < DOORS; door++) {
		CHECK_EQUAL(by_door(door, 9000, &refused_one), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(refused_one == (CUarray)UNTOUCHED);
		assert_data(DOORS * 8 * MIB);
	}
	for (unsigned door = 0; door < DOORS; door++) {
		CHECK_OK(end_by_door(door, arrays[door]));
		assert_data((DOORS - 1 - door) * 8 * MIB);
	}
}

/* All dimensions are told the driver as they came: a volume of the old function, and its flags. */
TEST(old_volume)
{
	const CUDA_ARRAY3D_DESCRIPTOR_v1 volume = {100, 100, 100, FLOAT, 1, 0};
	const CUDA_ARRAY3D_DESCRIPTOR_v1 layers = {500, 500, 7, FLOAT, 1, LAYER};
	const CUDA_ARRAY_DESCRIPTOR_v1 line = {100000, 0, HALF, 4};
	CUarray array[3];

	start("1g");
	CHECK_OK(cuArray3DCreate(&array[0], &volume));
	CHECK_EQUAL(true_data(), 6 * MIB); /* 5 */
	CHECK_OK(cuArray3DCreate(&array[1], &layers));
	CHECK_EQUAL(true_data(), 14 * MIB); /* and 7 */
	CHECK_OK(cuArrayCreate(&array[2], &line));
	CHECK_AT_MOST(15 * MIB, true_data());
	for (unsigned i = 0; i < 3; i++)
		CHECK_OK(cuArrayDestroy(array[i]));
	assert_data(0);
}

/* -- what takes nothing ----------------------------------------------------------------------- */

#define SPARSE   CUDA_ARRAY3D_SPARSE
#define DEFERRED CUDA_ARRAY3D_DEFERRED_MAPPING

/* Each would take 4 GiB and more. */
static const struct kind memoryless[] = {
	{"sparse", {16384, 16384, 0, FLOAT, 4, SPARSE}, 0},
	{"sparse_mips", {16384, 16384, 0, FLOAT, 4, SPARSE}, 5},
	{"deferred", {16384, 16384, 0, FLOAT, 4, DEFERRED}, 0},
	{"deferred_mips", {16384, 16384, 0, FLOAT, 4, DEFERRED}, 5},
};

static void make_without_memory(const struct kind *kind)
{
	union made one;

	start("600m");
	one = made_of(kind);
	assert_data(0);
	CHECK_OK(end(kind, one));
	assert_data(0);
}

TEST_TABLE(memoryless, make_without_memory);

/* -- destroying ------------------------------------------------------------------------------- */

/* A level is a handle into the whole: it costs nothing, and is none to be destroyed. */
TEST(levels)
{
	static const struct kind mips = {"mips", {4096, 4096, 0, FLOAT, 1, 0}, 13};
	CUarray level[13], again;
	union made whole;

	start("1g");
	whole = made_of(&mips);
	assert_data(86 * MIB);
	for (unsigned i = 0; i < 13; i++)
		CHECK_OK(cuMipmappedArrayGetLevel(&level[i], whole.mipmapped, i));
	assert_data(86 * MIB);
	for (unsigned i = 0; i < 13; i++)
		CHECK(cuArrayDestroy(level[i]) != CUDA_SUCCESS);
	CHECK_OK(cuMipmappedArrayGetLevel(&again, whole.mipmapped, 3));
	CHECK(again == level[3]);
	assert_data(86 * MIB);
	CHECK_OK(cuMipmappedArrayDestroy(whole.mipmapped));
	assert_data(0);
	CHECK(cuArrayDestroy(level[0]) != CUDA_SUCCESS);
	CHECK(cuMipmappedArrayDestroy(whole.mipmapped) != CUDA_SUCCESS);
	assert_data(0);
}

TEST(destroyed_wrongly)
{
	const struct kind *flat = &kinds[0], mips = {"mips", {1024, 1024, 0, FLOAT, 1, 0}, 11};
	union made a, b, little;
	uint64_t before;
	CUcontext context;

	start("1g");
	a = made_of(flat);
	b = made_of(&mips);
	little = made_of(&small);
	before = true_data();
	CHECK_EQUAL(cuArrayDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(cuMipmappedArrayDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(cuArrayDestroy(b.array), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(cuMipmappedArrayDestroy(a.mipmapped), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(cuMipmappedArrayDestroy(little.mipmapped), CUDA_ERROR_INVALID_HANDLE);
	assert_data(before);
	CHECK_OK(cuCtxGetCurrent(&context));
	CHECK_OK(cuCtxSetCurrent(NULL));
	CHECK_EQUAL(cuArrayDestroy(a.array), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQUAL(make(flat, &a), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_OK(cuCtxSetCurrent(context));
	assert_data(before);
	CHECK_OK(end(flat, a));
	CHECK_OK(end(&mips, b));
	CHECK_OK(end(&small, little));
	assert_data(0);
	CHECK_EQUAL(end(flat, a), CUDA_ERROR_INVALID_HANDLE);
	assert_data(0);
}

static void make_some(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		made_of(&kinds[0]);
		made_of(&small);
		made_of(&kinds[KINDS - 1]);
	}
}

TEST(with_their_context)
{
	CUcontext first, second;
	uint64_t before;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	CHECK_OK(cuInit(0));
	CHECK_OK(cuCtxCreate_v2(&first, 0, 0));
	give(take(1));
	make_some(40);
	before = true_data();
	CHECK_AT_MOST(40 * 8 * MIB, before);
	CHECK_OK(cuCtxCreate_v2(&second, 0, 0));
	make_some(64); /* small ones to whole granules: two contexts do not share one */
	CHECK_OK(cuCtxDestroy_v2(second));
	assert_data(before);
	CHECK_OK(cuCtxDestroy_v2(first));
	CHECK_EQUAL(ledger_own(0).total, 0);
	CHECK_EQUAL(outside_of(0, getpid()), 0);
}

TEST(reset)
{
	start("2g");
	for (unsigned round = 0; round < 3; round++) {
		make_some(20);
		true_data();
		CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
		CHECK_EQUAL(ledger_own(0).total, 0);
		cuda_start(0);
		assert_data(0);
	}
}

/* -- what the driver refuses ------------------------------------------------------------------ */

static const struct kind wrong[] = {
	{"no_width", {0, 10, 0, FLOAT, 1, 0}, 0},
	{"three_channels", {10, 10, 0, FLOAT, 3, 0}, 0},
	{"no_channels", {10, 10, 0, FLOAT, 0, 0}, 0},
	{"no_format", {10, 10, 0, 0x77, 1, 0}, 0},
	{"no_cube", {10, 11, 6, FLOAT, 1, CUBE}, 0},
	{"too_wide", {SIZE_MAX, 1, 0, FLOAT, 4, 0}, 0},
	{"too_high", {1, SIZE_MAX, 0, FLOAT, 4, 0}, 3},
	{"too_deep", {SIZE_MAX, SIZE_MAX, SIZE_MAX, FLOAT, 4, 0}, 3},
	{"unknown_flag", {10, 10, 0, FLOAT, 1, 0x10000}, 0},
	{"sparse_and_deferred", {10, 10, 0, FLOAT, 4, SPARSE | DEFERRED}, 0},
	{"sparse_and_deferred_mips", {10, 10, 0, FLOAT, 4, SPARSE | DEFERRED}, 2},
};

static void make_wrong(const struct kind *kind)
{
	union made none = {.any = (void *)UNTOUCHED};
	CUresult result;

	start("1g");
	result = make(kind, &none);
	CHECK(result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(none.any == (void *)UNTOUCHED);
	assert_data(0);
}

TEST_TABLE(wrong, make_wrong);

TEST(no_arguments)
{
	const CUDA_ARRAY3D_DESCRIPTOR good = {1024, 1024, 0, FLOAT, 1, 0};
	CUmipmappedArray mipmapped = (CUmipmappedArray)UNTOUCHED;
	CUarray array = (CUarray)UNTOUCHED;

	start("1g");
	CHECK_EQUAL(cuArrayCreate(NULL, &(CUDA_ARRAY_DESCRIPTOR_v1){9, 9, FLOAT, 1}),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuArrayCreate(&array, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuArrayCreate_v2(NULL, &(CUDA_ARRAY_DESCRIPTOR){9, 9, FLOAT, 1}),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuArrayCreate_v2(&array, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuArray3DCreate(&array, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuArray3DCreate_v2(NULL, &good), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuArray3DCreate_v2(&array, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMipmappedArrayCreate(NULL, &good, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMipmappedArrayCreate(&mipmapped, NULL, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMipmappedArrayCreate(&mipmapped, &good, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK(array == (CUarray)UNTOUCHED && mipmapped == (CUmipmappedArray)UNTOUCHED);
	assert_data(0);
}

/* What cannot fit is refused unasked; what the driver refuses costs nothing. The twin that is asked
 * about goes by the same function, so only every other call of that is told to fail. */
TEST(injected)
{
	CUarray array = (CUarray)UNTOUCHED;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "600m");
	env_set("VGPU_SIM_FAULTS", "cuArrayCreate=999,cuArrayCreate_v2=999,cuArray3DCreate=999,"
				   "cuArray3DCreate_v2=999,cuMipmappedArrayCreate=999,"
				   "cuArrayDestroy@1=998,cuMipmappedArrayDestroy@1=998");
	cuda_start(0);
	for (unsigned door = 0; door < DOORS; door++) {
		CHECK_EQUAL(by_door(door, 2048, &array), CUDA_ERROR_UNKNOWN);
		CHECK_EQUAL(by_door(door, 64, &array), CUDA_ERROR_UNKNOWN);
		CHECK_EQUAL(by_door(door, 50000, &array), CUDA_ERROR_OUT_OF_MEMORY);
	}
	CHECK(array == (CUarray)UNTOUCHED);
	give(take(1));
	assert_data(0);
}

/* The driver does not destroy it, and then does: it is charged until then. */
TEST(not_destroyed)
{
	static const struct kind mips = {"mips", {1024, 1024, 0, FLOAT, 1, 0}, 2};
	union made a, b, little;
	uint64_t before;

	env_set("VGPU_SIM_FAULTS", "cuArrayDestroy@4=998,cuArrayDestroy@6=998,"
				   "cuMipmappedArrayDestroy@2=998");
	start("1g");
	a = made_of(&kinds[0]);   /* the twin's is the first call */
	little = made_of(&small); /* the second */
	b = made_of(&mips);
	before = ledger_own(0).data;
	CHECK_EQUAL(cuArrayDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(end(&kinds[0], a), 998);
	CHECK_EQUAL(end(&mips, b), 998);
	CHECK_EQUAL(ledger_own(0).data, before);
	CHECK_OK(end(&kinds[0], a));
	CHECK_EQUAL(end(&small, little), 998);
	CHECK_AT_MOST(GRANULE, ledger_own(0).data);
	CHECK_OK(end(&small, little));
	CHECK_OK(end(&mips, b));
	assert_data(0);
}
