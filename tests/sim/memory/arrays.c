/* Arrays: each kind takes what it takes on the device, and fills the quota to the granule. */
#include "cuda_api.h"

#include <unistd.h>

#define QUOTA      (2 * GIB)
#define ARRAYS_MAX (1u << 16)

/* A format that has its channels in itself: 10 bits of three of them, and 2 of the fourth. */
#define PACKED_10_10_10_2 0x50
#define NORMAL_16X4       0xc5

#define FLOAT CU_AD_FORMAT_FLOAT
#define HALF  CU_AD_FORMAT_HALF
#define BYTE  CU_AD_FORMAT_UNSIGNED_INT8
#define CUBE  CUDA_ARRAY3D_CUBEMAP
#define LAYER CUDA_ARRAY3D_LAYERED

/* levels 0: an array. */
struct kind {
	const char *name;
	CUDA_ARRAY3D_DESCRIPTOR is;
	unsigned levels;
};

union made {
	CUarray array;
	CUmipmappedArray mipmapped;
	void *any;
};

static union made made[ARRAYS_MAX];

static void start(const char *limit)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	cuda_start(0);
	give(take(1)); /* settles the context */
	CHECK_EQUAL(ledger_own(0).data, 0);
}

/* The ledger is the truth. */
static void assert_data(uint64_t bytes)
{
	struct vgpu_hami_usage usage = ledger_own(0);

	CHECK_EQUAL(usage.data, bytes);
	CHECK_EQUAL(usage.context, CONTEXT);
	CHECK_EQUAL(usage.module, 0);
	CHECK_EQUAL(outside_of(0, getpid()), usage.context + usage.data);
}

/* The same, whatever it is; which is returned. */
static uint64_t true_data(void)
{
	uint64_t data = ledger_own(0).data;

	assert_data(data);
	return data;
}

static void assert_held_to(uint64_t quota)
{
	uint64_t outside = outside_used(0);

	CHECK_AT_MOST(outside, quota + GRANULE);
	CHECK_AT_MOST(quota / 100 * 99, outside);
	CHECK_AT_MOST(ledger_used(0), quota);
}

static CUresult make(const struct kind *kind, union made *ret_made)
{
	return kind->levels ? cuMipmappedArrayCreate(&ret_made->mipmapped, &kind->is, kind->levels)
			    : cuArray3DCreate_v2(&ret_made->array, &kind->is);
}

static CUresult end(const struct kind *kind, union made one)
{
	return kind->levels ? cuMipmappedArrayDestroy(one.mipmapped) : cuArrayDestroy(one.array);
}

static union made made_of(const struct kind *kind)
{
	union made one = {.any = NULL};

	CHECK_CUDA(make(kind, &one), CUDA_SUCCESS);
	CHECK(one.any);
	return one;
}

static unsigned fill_with(const struct kind *kind, union made *arrays, unsigned max)
{
	union made one = {.any = (void *)(uintptr_t)UNTOUCHED};
	unsigned count = 0;
	CUresult result;

	while ((result = make(kind, &one)) == CUDA_SUCCESS) {
		CHECK(count < max);
		arrays[count++] = one;
		one.any = (void *)(uintptr_t)UNTOUCHED;
	}
	CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(one.any == (void *)(uintptr_t)UNTOUCHED);
	return count;
}

static void end_all(const struct kind *kind, union made *arrays, unsigned count)
{
	while (count > 0)
		CHECK_CUDA(end(kind, arrays[--count]), CUDA_SUCCESS);
}

static const struct kind small = {"64 KiB", {64, 64, 0, FLOAT, 4, 0}, 0};

static const struct kind kinds[] = {
	{"flat", {1024, 1024, 0, FLOAT, 1, 0}, 0},
	{"odd", {1001, 1003, 0, BYTE, 2, 0}, 0},
	{"half4", {777, 333, 0, HALF, 4, 0}, 0},
	{"signed", {1500, 1500, 0, CU_AD_FORMAT_SIGNED_INT16, 1, 0}, 0},
	{"one dimension", {131072, 0, 0, FLOAT, 4, 0}, 0},
	{"thin", {1, 65536, 0, BYTE, 1, 0}, 0},
	{"volume", {100, 100, 100, FLOAT, 1, 0}, 0},
	{"volume, one deeper", {1024, 128, 9, FLOAT, 1, 0}, 0},
	{"flat volume", {900, 900, 2, BYTE, 4, 0}, 0},
	{"layers", {500, 500, 7, FLOAT, 1, LAYER}, 0},
	{"layers of one dimension", {4096, 0, 30, FLOAT, 4, LAYER}, 0},
	{"little layers", {1, 1, 2048, BYTE, 1, LAYER}, 0},
	{"cube", {300, 300, 6, FLOAT, 4, CUBE}, 0},
	{"cubes", {64, 64, 18, HALF, 4, CUBE | LAYER}, 0},
	{"surface", {1024, 700, 0, HALF, 2, CUDA_ARRAY3D_SURFACE_LDST}, 0},
	{"gathered", {900, 900, 0, FLOAT, 2, 0x08}, 0}, /* CUDA_ARRAY3D_TEXTURE_GATHER */
	{"BC1", {4096, 4096, 0, CU_AD_FORMAT_BC1_UNORM, 4, 0}, 0},
	{"BC7", {2050, 2049, 0, CU_AD_FORMAT_BC7_UNORM_SRGB, 4, 0}, 0},
	{"BC7, one channel", {2050, 2049, 0, CU_AD_FORMAT_BC7_UNORM_SRGB, 1, 0}, 0},
	{"packed", {1025, 1025, 0, PACKED_10_10_10_2, 4, 0}, 0},
	{"normalised", {1000, 1000, 0, NORMAL_16X4, 1, 0}, 0},
	{"just not small", {512, 513, 0, FLOAT, 1, 0}, 0},
	{"just small", {512, 512, 0, FLOAT, 1, 0}, 0},
	{"small, three to a granule", {640, 256, 0, FLOAT, 1, 0}, 0},
	{"mips", {1024, 1024, 0, FLOAT, 1, 0}, 11},
	{"mips, one level", {1000, 600, 0, HALF, 2, 0}, 1},
	{"mips, some", {1000, 600, 0, HALF, 2, 0}, 10},
	{"mips of nothing", {2, 1, 0, BYTE, 1, 0}, 2},
	{"mips of a line", {131072, 0, 0, BYTE, 1, 0}, 17},
	{"mips, thin", {1, 65536, 0, BYTE, 1, 0}, 17},
	{"mips of a volume", {128, 128, 128, HALF, 1, 0}, 8},
	{"mips of layers", {256, 256, 9, HALF, 4, LAYER}, 9},
	{"mips of a cube", {256, 256, 6, FLOAT, 1, CUBE}, 9},
	{"mips of BC1", {2048, 2048, 0, CU_AD_FORMAT_BC1_UNORM, 4, 0}, 12},
	{"mips, surface", {700, 700, 0, FLOAT, 2, CUDA_ARRAY3D_SURFACE_LDST}, 4},
};
#define KINDS (sizeof(kinds) / sizeof(*kinds))

/* -- filling ---------------------------------------------------------------------------------- */

/* With one kind, then with the smallest where that leaves room: neither passes the quota, and both
 * together have all of it. */
static void filled(unsigned first, unsigned last)
{
	start("2g");
	for (unsigned i = first; i < last; i++) {
		unsigned count = fill_with(&kinds[i], made, ARRAYS_MAX), rest;

		assert_held_to(QUOTA);
		true_data();
		rest = fill_with(&small, made + count, ARRAYS_MAX - count);
		assert_held_to(QUOTA);
		CHECK_AT_MOST(QUOTA - GRANULE, ledger_used(0));
		refused(GRANULE);
		end_all(&small, made + count, rest);
		end_all(&kinds[i], made, count);
		assert_data(0);
	}
}

static void filled_with_each(void)
{
	filled(0, KINDS / 2);
}

static void filled_with_each_other(void)
{
	filled(KINDS / 2, KINDS);
}

/* Small arrays share granules: all of the quota is given out, and the granule that is not charged
 * is not taken. */
static void filled_with_small(void)
{
	unsigned count;

	start("1g");
	count = fill_with(&small, made, ARRAYS_MAX);
	CHECK_EQUAL(count, (GIB - CONTEXT - HIDDEN) / (64 * KIB));
	assert_held_to(GIB);
	true_data();
	end_all(&small, made, count);
	assert_data(0);
}

/* The small arrays of all sizes, each with its like. */
static void small_of_each_size(void)
{
	start("700m");
	for (size_t width = 32; width <= 512; width += 32) {
		struct kind kind = {"units", {width, 128, 0, FLOAT, 4, 0}, 0};
		unsigned count = fill_with(&kind, made, ARRAYS_MAX);

		CHECK_AT_MOST(outside_used(0), 700 * MIB + GRANULE);
		CHECK_AT_MOST(700 * MIB - GRANULE, ledger_used(0));
		true_data();
		end_all(&kind, made, count);
		assert_data(0);
	}
}

/* -- small ones of many sizes: which share a granule is the driver's to choose ------------------
 */

/* So many times 64 KiB. */
static CUresult make_units(unsigned units, union made *ret_made)
{
	const struct kind kind = {"units", {32 * (size_t)units, 128, 0, FLOAT, 4, 0}, 0};

	ret_made->any = NULL;
	return make(&kind, ret_made);
}

/* Few are left, one in each granule: which nobody else can have. */
static void scattered(void)
{
	static CUdeviceptr pieces[1024];
	unsigned count, kept = 0;

	start("1g");
	count = fill_with(&small, made, ARRAYS_MAX);
	for (unsigned i = 0; i < count; i++) {
		if (i % 32)
			CHECK_CUDA(end(&small, made[i]), CUDA_SUCCESS);
		else
			made[kept++] = made[i];
	}
	refused(GRANULE);
	assert_held_to(GIB);
	true_data();
	for (unsigned i = 0; i < kept / 2; i++)
		CHECK_CUDA(end(&small, made[i]), CUDA_SUCCESS);
	CHECK_EQUAL(fill(pieces, 1024, GRANULE), kept / 2);
	assert_held_to(GIB);
	true_data();
	end_all(&small, made + kept / 2, kept - kept / 2);
	assert_data(kept / 2 * GRANULE);
}

static void start_unseen(void)
{
	env_set("VGPU_SIM_NVML_PIDS", "none");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	cuda_start(0);
}

static void assert_no_less(void)
{
	CHECK_AT_MOST(outside_of(0, getpid()) - CONTEXT, ledger_own(0).data);
}

static void scattered_unseen(void)
{
	static CUdeviceptr pieces[1024];
	unsigned count;

	start_unseen();
	count = fill_with(&small, made, ARRAYS_MAX);
	for (unsigned i = 0; i < count; i++)
		if (i % 32)
			CHECK_CUDA(end(&small, made[i]), CUDA_SUCCESS);
	fill(pieces, 1024, GRANULE);
	CHECK_AT_MOST(outside_used(0), GIB + GRANULE);
}

/* What is alike is charged to the granule, without NVML's help. */
static void alike_unseen(void)
{
	start_unseen();
	for (unsigned units = 1; units <= 16; units++) {
		unsigned each = 32 / units, count = 20 * each + 1;

		for (unsigned i = 0; i < count; i++)
			CHECK_CUDA(make_units(units, &made[i]), CUDA_SUCCESS);
		CHECK_EQUAL(ledger_own(0).data, 21 * GRANULE);
		for (unsigned i = 0; i < count; i += 2) {
			CHECK_CUDA(end(&small, made[i]), CUDA_SUCCESS);
			CHECK_CUDA(make_units(units, &made[i]), CUDA_SUCCESS);
		}
		CHECK_EQUAL(ledger_own(0).data, 21 * GRANULE);
		assert_no_less();
		end_all(&small, made, count);
		CHECK_EQUAL(ledger_own(0).data, 0);
	}
}

/* Gaps of every size that are one too short for what comes then. */
static void gaps_unseen(void)
{
	start_unseen();
	for (unsigned units = 2; units <= 16; units++) {
		unsigned count = 10 * 32, kept = 0;

		for (unsigned i = 0; i < count; i++)
			CHECK_CUDA(make_units(1, &made[i]), CUDA_SUCCESS);
		for (unsigned i = 0; i < count; i++) {
			if (i % 32 % units == units - 1)
				made[kept++] = made[i];
			else
				CHECK_CUDA(end(&small, made[i]), CUDA_SUCCESS);
		}
		for (unsigned i = 0; i < 40; i++) {
			CHECK_CUDA(make_units(units, &made[kept++]), CUDA_SUCCESS);
			assert_no_less();
		}
		end_all(&small, made, kept);
		CHECK_EQUAL(ledger_own(0).data, 0);
	}
}

/* The first is like the last, and those in between fill the granules. */
static void unlike_unseen(void)
{
	unsigned count = 0;

	start_unseen();
	CHECK_CUDA(make_units(1, &made[count++]), CUDA_SUCCESS);
	while (count < 41)
		CHECK_CUDA(make_units(16, &made[count++]), CUDA_SUCCESS);
	while (count < 1500) {
		CHECK_CUDA(make_units(1, &made[count++]), CUDA_SUCCESS);
		assert_no_less();
	}
	end_all(&small, made, count);
	CHECK_EQUAL(ledger_own(0).data, 0);
}

/* In turns, of sizes that do not go together as well as each does with its like, or better. */
static void in_turns(void)
{
	static const unsigned turns[][4] = {{16, 9, 16, 9},   {11, 11, 10, 11}, {9, 16, 12, 16},
					    {16, 6, 11, 1},   {1, 16, 1, 16},   {5, 7, 3, 13},
					    {10, 10, 10, 12}, {2, 15, 15, 2}};

	start("700m");
	for (unsigned i = 0; i < sizeof(turns) / sizeof(*turns); i++) {
		unsigned count = 0;
		CUresult result;

		while ((result = make_units(turns[i][count % 4], &made[count])) == CUDA_SUCCESS)
			count++;
		CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(!made[count].any);
		assert_held_to(700 * MIB);
		true_data();
		end_all(&small, made, count);
		assert_data(0);
	}
}

static void at_random(void)
{
	unsigned seed = 7, refusals = 0;
	struct figures seen;

	start("700m");
	outside_watch(0);
	for (unsigned round = 0; round < 20000; round++) {
		unsigned i = (unsigned)rand_r(&seed) % 1000;

		if (made[i].any) {
			CHECK_CUDA(cuArrayDestroy(made[i].array), CUDA_SUCCESS);
			made[i].any = NULL;
		} else {
			refusals += make_units(1 + (unsigned)rand_r(&seed) % 16, &made[i]) !=
				    CUDA_SUCCESS;
		}
	}
	seen = outside_watched();
	CHECK_AT_MOST(seen.used, 700 * MIB + GRANULE);
	CHECK_AT_MOST(1, refusals);
	for (unsigned i = 0; i < 1000; i++)
		if (made[i].any)
			CHECK_CUDA(cuArrayDestroy(made[i].array), CUDA_SUCCESS);
	assert_data(0);
}

/* Contexts do not share. */
static void small_in_two_contexts(void)
{
	CUcontext first, second;
	union made one, other;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxCreate_v2(&first, 0, 0), CUDA_SUCCESS);
	one = made_of(&small);
	CHECK_CUDA(cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
	other = made_of(&small);
	CHECK_EQUAL(ledger_own(0).data, 2 * GRANULE);
	CHECK_EQUAL(outside_of(0, getpid()), 2 * CONTEXT + 2 * GRANULE);
	CHECK_CUDA(end(&small, one), CUDA_SUCCESS); /* in the other's time */
	CHECK_EQUAL(ledger_own(0).data, GRANULE);
	CHECK_EQUAL(outside_of(0, getpid()), 2 * CONTEXT + GRANULE);
	CHECK_CUDA(cuCtxDestroy_v2(first), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).data, GRANULE);
	CHECK_CUDA(end(&small, other), CUDA_SUCCESS);
	assert_data(0);
}

/* At the limit, what one gives back another has: arrays, linear memory, mipmapped arrays. */
static void to_and_fro(void)
{
	static const struct kind flat = {"4 MiB", {1024, 1024, 0, FLOAT, 1, 0}, 0};
	static const struct kind mips = {"4 MiB", {512, 1024, 0, FLOAT, 1, 0}, 3};
	unsigned count;

	start("700m");
	count = fill_with(&flat, made, ARRAYS_MAX);
	CHECK_EQUAL(count, (700 * MIB - CONTEXT - HIDDEN) / (4 * MIB));
	for (unsigned round = 0; round < 500; round++) {
		const struct kind *kind = round % 3 ? &flat : &mips;
		union made one, none = {.any = NULL};
		CUdeviceptr linear;

		CHECK_CUDA(end(&flat, made[round % count]), CUDA_SUCCESS);
		linear = take(4 * MIB);
		CHECK_CUDA(make(kind, &none), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(!none.any);
		give(linear);
		one = made_of(kind);
		refused(4 * MIB);
		CHECK_CUDA(end(kind, one), CUDA_SUCCESS);
		made[round % count] = made_of(&flat);
	}
	assert_held_to(700 * MIB);
	true_data();
	end_all(&flat, made, count);
	assert_data(0);
}

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

static void by_each_door(void)
{
	CUarray arrays[DOORS], refused_one = (CUarray)UNTOUCHED;

	start("600m"); /* 72 MiB are left */
	for (unsigned door = 0; door < DOORS; door++) {
		CHECK_CUDA(by_door(door, 2048, &arrays[door]), CUDA_SUCCESS);
		assert_data((door + 1) * 8 * MIB);
	}
	for (unsigned door = 0; door < DOORS; door++) {
		CHECK_CUDA(by_door(door, 9000, &refused_one), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(refused_one == (CUarray)UNTOUCHED);
		assert_data(DOORS * 8 * MIB);
	}
	for (unsigned door = 0; door < DOORS; door++) {
		CHECK_CUDA(end_by_door(door, arrays[door]), CUDA_SUCCESS);
		assert_data((DOORS - 1 - door) * 8 * MIB);
	}
}

/* All dimensions are told the driver as they came: a volume of the old function, and its flags. */
static void old_volume(void)
{
	const CUDA_ARRAY3D_DESCRIPTOR_v1 volume = {100, 100, 100, FLOAT, 1, 0};
	const CUDA_ARRAY3D_DESCRIPTOR_v1 layers = {500, 500, 7, FLOAT, 1, LAYER};
	const CUDA_ARRAY_DESCRIPTOR_v1 line = {100000, 0, HALF, 4};
	CUarray array[3];

	start("1g");
	CHECK_CUDA(cuArray3DCreate(&array[0], &volume), CUDA_SUCCESS);
	CHECK_EQUAL(true_data(), 6 * MIB); /* 5 */
	CHECK_CUDA(cuArray3DCreate(&array[1], &layers), CUDA_SUCCESS);
	CHECK_EQUAL(true_data(), 14 * MIB); /* and 7 */
	CHECK_CUDA(cuArrayCreate(&array[2], &line), CUDA_SUCCESS);
	CHECK_AT_MOST(15 * MIB, true_data());
	for (unsigned i = 0; i < 3; i++)
		CHECK_CUDA(cuArrayDestroy(array[i]), CUDA_SUCCESS);
	assert_data(0);
}

/* -- what takes nothing ----------------------------------------------------------------------- */

static void without_memory(void)
{
	static const unsigned flags[] = {CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING};
	struct kind flat = {"flat", {16384, 16384, 0, FLOAT, 4, 0}, 0}; /* 4 GiB */
	struct kind mips = {"mips", {16384, 16384, 0, FLOAT, 4, 0}, 5};
	union made none = {.any = NULL};

	start("600m");
	for (unsigned i = 0; i < 2; i++) {
		union made a, b;

		flat.is.Flags = mips.is.Flags = flags[i];
		a = made_of(&flat);
		b = made_of(&mips);
		assert_data(0);
		CHECK_CUDA(end(&flat, a), CUDA_SUCCESS);
		CHECK_CUDA(end(&mips, b), CUDA_SUCCESS);
		assert_data(0);
	}
	flat.is.Flags = mips.is.Flags = flags[0] | flags[1];
	CHECK_CUDA(make(&flat, &none), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(make(&mips, &none), CUDA_ERROR_INVALID_VALUE);
	CHECK(!none.any);
	assert_data(0);
}

/* -- destroying ------------------------------------------------------------------------------- */

/* A level is a handle into the whole: it costs nothing, and is none to be destroyed. */
static void levels(void)
{
	static const struct kind mips = {"mips", {4096, 4096, 0, FLOAT, 1, 0}, 13};
	CUarray level[13], again;
	union made whole;

	start("1g");
	whole = made_of(&mips);
	assert_data(86 * MIB);
	for (unsigned i = 0; i < 13; i++)
		CHECK_CUDA(cuMipmappedArrayGetLevel(&level[i], whole.mipmapped, i), CUDA_SUCCESS);
	assert_data(86 * MIB);
	for (unsigned i = 0; i < 13; i++)
		CHECK(cuArrayDestroy(level[i]) != CUDA_SUCCESS);
	CHECK_CUDA(cuMipmappedArrayGetLevel(&again, whole.mipmapped, 3), CUDA_SUCCESS);
	CHECK(again == level[3]);
	assert_data(86 * MIB);
	CHECK_CUDA(cuMipmappedArrayDestroy(whole.mipmapped), CUDA_SUCCESS);
	assert_data(0);
	CHECK(cuArrayDestroy(level[0]) != CUDA_SUCCESS);
	CHECK(cuMipmappedArrayDestroy(whole.mipmapped) != CUDA_SUCCESS);
	assert_data(0);
}

static void destroyed_wrongly(void)
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
	CHECK_CUDA(cuArrayDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
	CHECK_CUDA(cuMipmappedArrayDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
	CHECK_CUDA(cuArrayDestroy(b.array), CUDA_ERROR_INVALID_HANDLE);
	CHECK_CUDA(cuMipmappedArrayDestroy(a.mipmapped), CUDA_ERROR_INVALID_HANDLE);
	CHECK_CUDA(cuMipmappedArrayDestroy(little.mipmapped), CUDA_ERROR_INVALID_HANDLE);
	assert_data(before);
	CHECK_CUDA(cuCtxGetCurrent(&context), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
	CHECK_CUDA(cuArrayDestroy(a.array), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_CUDA(make(flat, &a), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_CUDA(cuCtxSetCurrent(context), CUDA_SUCCESS);
	assert_data(before);
	CHECK_CUDA(end(flat, a), CUDA_SUCCESS);
	CHECK_CUDA(end(&mips, b), CUDA_SUCCESS);
	CHECK_CUDA(end(&small, little), CUDA_SUCCESS);
	assert_data(0);
	CHECK_CUDA(end(flat, a), CUDA_ERROR_INVALID_HANDLE);
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

static void with_their_context(void)
{
	CUcontext first, second;
	uint64_t before;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxCreate_v2(&first, 0, 0), CUDA_SUCCESS);
	give(take(1));
	make_some(40);
	before = true_data();
	CHECK_AT_MOST(40 * 8 * MIB, before);
	CHECK_CUDA(cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
	make_some(64); /* small ones to whole granules: two contexts do not share one */
	CHECK_CUDA(cuCtxDestroy_v2(second), CUDA_SUCCESS);
	assert_data(before);
	CHECK_CUDA(cuCtxDestroy_v2(first), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).total, 0);
	CHECK_EQUAL(outside_of(0, getpid()), 0);
}

static void reset(void)
{
	CUcontext context;

	start("2g");
	for (unsigned round = 0; round < 3; round++) {
		make_some(20);
		true_data();
		CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
		CHECK_EQUAL(ledger_own(0).total, 0);
		CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
		CHECK_CUDA(cuCtxSetCurrent(context), CUDA_SUCCESS);
		assert_data(0);
	}
}

/* -- what the driver refuses ------------------------------------------------------------------ */

static void rejected(void)
{
	static const struct kind wrong[] = {
		{"no width", {0, 10, 0, FLOAT, 1, 0}, 0},
		{"three channels", {10, 10, 0, FLOAT, 3, 0}, 0},
		{"no channels", {10, 10, 0, FLOAT, 0, 0}, 0},
		{"no format", {10, 10, 0, 0x77, 1, 0}, 0},
		{"no cube", {10, 11, 6, FLOAT, 1, CUBE}, 0},
		{"too wide", {SIZE_MAX, 1, 0, FLOAT, 4, 0}, 0},
		{"too high", {1, SIZE_MAX, 0, FLOAT, 4, 0}, 3},
		{"too deep", {SIZE_MAX, SIZE_MAX, SIZE_MAX, FLOAT, 4, 0}, 3},
		{"unknown flag", {10, 10, 0, FLOAT, 1, 0x10000}, 0},
	};
	const CUDA_ARRAY3D_DESCRIPTOR good = {1024, 1024, 0, FLOAT, 1, 0};
	CUmipmappedArray mipmapped = (CUmipmappedArray)UNTOUCHED;
	CUarray array = (CUarray)UNTOUCHED;

	start("1g");
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		union made none = {.any = (void *)UNTOUCHED};
		CUresult result = make(&wrong[i], &none);

		CHECK(result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(none.any == (void *)UNTOUCHED);
		assert_data(0);
	}
	CHECK_CUDA(cuArrayCreate(NULL, &(CUDA_ARRAY_DESCRIPTOR_v1){9, 9, FLOAT, 1}),
		   CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuArrayCreate(&array, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuArrayCreate_v2(NULL, &(CUDA_ARRAY_DESCRIPTOR){9, 9, FLOAT, 1}),
		   CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuArrayCreate_v2(&array, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuArray3DCreate(&array, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuArray3DCreate_v2(NULL, &good), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuArray3DCreate_v2(&array, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMipmappedArrayCreate(NULL, &good, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMipmappedArrayCreate(&mipmapped, NULL, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMipmappedArrayCreate(&mipmapped, &good, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK(array == (CUarray)UNTOUCHED && mipmapped == (CUmipmappedArray)UNTOUCHED);
	assert_data(0);
}

/* What cannot fit is refused unasked; what the driver refuses costs nothing. The twin that is asked
 * about goes by the same function, so only every other call of that is told to fail. */
static void injected(void)
{
	CUarray array = (CUarray)UNTOUCHED;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "600m");
	env_set("VGPU_SIM_FAULTS", "cuArrayCreate=999,cuArrayCreate_v2=999,cuArray3DCreate=999,"
				   "cuArray3DCreate_v2=999,cuMipmappedArrayCreate=999,"
				   "cuArrayDestroy@1=998,cuMipmappedArrayDestroy@1=998");
	cuda_start(0);
	for (unsigned door = 0; door < DOORS; door++) {
		CHECK_CUDA(by_door(door, 2048, &array), CUDA_ERROR_UNKNOWN);
		CHECK_CUDA(by_door(door, 64, &array), CUDA_ERROR_UNKNOWN);
		CHECK_CUDA(by_door(door, 50000, &array), CUDA_ERROR_OUT_OF_MEMORY);
	}
	CHECK(array == (CUarray)UNTOUCHED);
	give(take(1));
	assert_data(0);
}

/* The driver does not destroy it, and then does: it is charged until then. */
static void not_destroyed(void)
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
	CHECK_CUDA(cuArrayDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
	CHECK_CUDA(end(&kinds[0], a), 998);
	CHECK_CUDA(end(&mips, b), 998);
	CHECK_EQUAL(ledger_own(0).data, before);
	CHECK_CUDA(end(&kinds[0], a), CUDA_SUCCESS);
	CHECK_CUDA(end(&small, little), 998);
	CHECK_AT_MOST(GRANULE, ledger_own(0).data);
	CHECK_CUDA(end(&small, little), CUDA_SUCCESS);
	CHECK_CUDA(end(&mips, b), CUDA_SUCCESS);
	assert_data(0);
}

/* -- a driver that does not say what an array would take --------------------------------------- */

/* Too much is charged, then, and never too little. */
static void reckoned(void)
{
	start("2g");
	for (unsigned i = 0; i < KINDS; i++) {
		union made one = made_of(&kinds[i]);
		uint64_t really = outside_of(0, getpid()) - CONTEXT;

		if (ledger_own(0).data < really)
			fprintf(stderr, "%s\n", kinds[i].name);
		CHECK_AT_MOST(really, ledger_own(0).data);
		CHECK_CUDA(end(&kinds[i], one), CUDA_SUCCESS);
		assert_data(0);
	}
}

static void reckoned_unanswered(void)
{
	env_set("VGPU_SIM_FAULTS", "cuArrayGetMemoryRequirements=999,"
				   "cuMipmappedArrayGetMemoryRequirements=999");
	reckoned();
}

/* Every format, in shapes that fill tiles badly and well. */
static void reckoned_formats(void)
{
	static const size_t shapes[][3] = {{1, 1, 0},     {1, 0, 0},      {1000, 0, 0},
					   {1, 5000, 0},  {5, 700, 0},    {129, 129, 0},
					   {17, 17, 17},  {3, 900, 9},    {1000, 3, 2},
					   {64, 2049, 0}, {2049, 513, 0}, {1024, 1024, 0}};
	unsigned tried = 0;

	env_set("VGPU_SIM_FAULTS", "cuArrayGetMemoryRequirements=999,"
				   "cuMipmappedArrayGetMemoryRequirements=999");
	start("2g");
	for (unsigned format = 0; format < 0x100; format++)
		for (unsigned i = 0; i < 12 * 3 * 3; i++) {
			const size_t *shape = shapes[i % 12];
			struct kind kind = {
				"any",
				{shape[0], shape[1], shape[2], format, 1u << i / 12 % 3, 0},
				i / 36 * 3};
			union made one;
			uint64_t really;

			if (make(&kind, &one) != CUDA_SUCCESS)
				continue;
			tried++;
			really = outside_of(0, getpid()) - CONTEXT;
			CHECK_AT_MOST(really, ledger_own(0).data);
			CHECK_CUDA(end(&kind, one), CUDA_SUCCESS);
		}
	CHECK_AT_MOST(36 * 12 * 3, tried);
	assert_data(0);
}

int main(int argc, char **argv)
{
	static const struct scene scenes[] = {
		SCENE(filled_with_each),
		SCENE(filled_with_each_other),
		SCENE(filled_with_small),
		SCENE(small_of_each_size),
		SCENE(scattered),
		SCENE(scattered_unseen),
		SCENE(alike_unseen),
		SCENE(gaps_unseen),
		SCENE(unlike_unseen),
		SCENE(in_turns),
		SCENE(at_random),
		SCENE(small_in_two_contexts),
		SCENE(to_and_fro),
		SCENE(by_each_door),
		SCENE(old_volume),
		SCENE(without_memory),
		SCENE(levels),
		SCENE(destroyed_wrongly),
		SCENE(with_their_context),
		SCENE(reset),
		SCENE(rejected),
		SCENE(injected),
		SCENE(not_destroyed),
		SCENE(reckoned),
		SCENE(reckoned_unanswered),
		SCENE(reckoned_formats),
	};

	return SCENES_PLAY(scenes, argc, argv);
}
