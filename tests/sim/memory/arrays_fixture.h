/*
 * What the tests of arrays share: arrays of every kind, made and ended, and what is true of them.
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

#define KINDS 35

extern const struct kind kinds[KINDS];
extern const struct kind small;
extern union made made[ARRAYS_MAX];

void start(const char *limit);

/* The ledger is the truth. */
void assert_data(uint64_t bytes);
/* The same, whatever it is; which is returned. */
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

	CHECK_CUDA(make(kind, &one), CUDA_SUCCESS);
	CHECK(one.any);
	return one;
}

/* As many as there is room for, which is returned; the last is refused as the driver refuses. */
unsigned fill_with(const struct kind *kind, union made *arrays, unsigned max);
void end_all(const struct kind *kind, union made *arrays, unsigned count);
