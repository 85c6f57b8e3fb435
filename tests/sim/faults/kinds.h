/* Allocates and frees memory of several kinds by the same functions. */
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

/* These return the result of the driver or the library. After an error, nothing is held. */
CUresult thing_make(enum kind kind, uint64_t bytes, CUstream stream, struct thing *ret_thing);
CUresult thing_end(const struct thing *thing, CUstream stream);
