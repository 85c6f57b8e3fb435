/* See arrays_fixture.h. */
#include "arrays_fixture.h"

#include <unistd.h>

/* A format that has its channels in itself: 10 bits of three of them, and 2 of the fourth. */
#define PACKED_10_10_10_2 0x50
#define NORMAL_16X4       0xc5

const struct kind small = {"64 KiB", {64, 64, 0, FLOAT, 4, 0}, 0};

const struct kind kinds[KINDS] = {
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

union made made[ARRAYS_MAX];

void start(const char *limit)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	cuda_start(0);
	give(take(1)); /* settles the context */
	CHECK_EQUAL(ledger_own(0).data, 0);
}

void assert_data(uint64_t bytes)
{
	struct vgpu_hami_usage usage = ledger_own(0);

	CHECK_EQUAL(usage.data, bytes);
	CHECK_EQUAL(usage.context, CONTEXT);
	CHECK_EQUAL(usage.module, 0);
	CHECK_EQUAL(outside_of(0, getpid()), usage.context + usage.data);
}

uint64_t true_data(void)
{
	uint64_t data = ledger_own(0).data;

	assert_data(data);
	return data;
}

void assert_held_to(uint64_t quota)
{
	uint64_t outside = outside_used(0);

	CHECK_AT_MOST(outside, quota + GRANULE);
	CHECK_AT_MOST(quota / 100 * 99, outside);
	CHECK_AT_MOST(ledger_used(0), quota);
}

unsigned fill_with(const struct kind *kind, union made *arrays, unsigned max)
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

void end_all(const struct kind *kind, union made *arrays, unsigned count)
{
	while (count > 0)
		CHECK_OK(end(kind, arrays[--count]));
}
