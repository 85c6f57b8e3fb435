/*
 * Shared by the tests of arrays: arrays of every kind, functions that make and end them, and
 * checks.
 */
#pragma once

#include "cuda_api.h"

#define QUOTA      (2 * GIB)
#define ARRAYS_MAX (1u << 16)

#define FLOAT CU_AD_FORMAT_FLOAT
#define HALF  CU_AD_FORMAT_HALF
#define BYTE  CU_AD_FORMAT_UNSIGNED_INT8
#define CUBE  CUDA_ARRAY3D_CUBEMAP
#define LAYER CUDA_ARRAY3D_LAYERED

/* A kind of array. levels: of a mipmapped array; 0: a plain array. */
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

#define KINDS 35

extern const struct kind kinds[KINDS];
extern const struct kind small;
extern union made made[ARRAYS_MAX];

void start(const char *limit);

/* Checks that `bytes` of data are charged, and that the device holds what is charged. */
void assert_data(uint64_t bytes);
/* Checks that the device holds what is charged. Returns the bytes of data. */
uint64_t true_data(void);
void assert_held_to(uint64_t quota);

static inline CUresult make(const struct kind *kind, union made *ret_made)
{
	return kind->levels ? cuMipmappedArrayCreate(&ret_made->mipmapped, &kind->is, kind->levels)
			    : cuArray3DCreate_v2(&ret_made->array, &kind->is);
}

static inline CUresult end(const struct kind *kind, union made one)
{
	return kind->levels ? cuMipmappedArrayDestroy(one.mipmapped) : cuArrayDestroy(one.array);
}

static inline union made made_of(const struct kind *kind)
{
	union made one = {.any = NULL};

	CHECK_OK(make(kind, &one));
	CHECK(one.any);
	return one;
}

/* Makes as many arrays as there is room for, and returns their number. The last is refused as
 * the driver does it. */
unsigned fill_with(const struct kind *kind, union made *arrays, unsigned max);
void end_all(const struct kind *kind, union made *arrays, unsigned count);
