/* Memory of several kinds, to be had and given back alike. */
#pragma once

#include "cuda_api.h"

enum kind {
	KIND_DEVICE,
	KIND_PITCH,
	KIND_MANAGED,
	KIND_ASYNC,  /* stream-ordered, from the default pool */
	KIND_HANDLE, /* cuMemCreate, mapped */
	KIND_ARRAY,
	KINDS
};

struct thing {
	enum kind kind;
	uint64_t bytes; /* a multiple of GRANULE */
	union {
		CUdeviceptr address;
		CUarray array;
	};
};

/* What the driver, or the library, answers. Where it is no success, nothing is held. */
CUresult thing_make(enum kind kind, uint64_t bytes, CUstream stream, struct thing *ret_thing);
CUresult thing_end(const struct thing *thing, CUstream stream);
