/* The ways of taking device memory that `take` knows. */
#pragma once

#include <stddef.h>

#include "cuda_abi.h"

#define CU_HOOK(name, class, parameters, arguments) CUresult name parameters;
#define CU_CALL(name, class, parameters)            CUresult name parameters;
#define CU_SIM(name, class, parameters)             CUresult name parameters;
#include "cuda.def"

#define MIB ((size_t)1 << 20)

struct path {
	const char *name;
	CUresult (*take)(size_t bytes); /* one step more */
};

extern const struct path paths[]; /* ends with a name of NULL */
