/*
 * The CUDA driver's functions, as calls of ours reach them: cuda.cuMemAlloc_v2(…). The table comes
 * from api/cuda.def (hooked and called rows). Every member can be called at any time: one that this
 * driver lacks, and all of them before cuda_bind, return CUDA_ERROR_NOT_SUPPORTED.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cuda_abi.h"

#define CUDA_SONAME "libcuda.so.1"

struct cuda_functions {
#define CU_HOOK(name, class, parameters, arguments) CUresult(*name) parameters;
#define CU_CALL(name, class, parameters)            CUresult(*name) parameters;
#include "cuda.def"
};

extern struct cuda_functions cuda;

/*
 * Fills the table from libcuda.so.1, if that is loaded in this process. This library never loads
 * it: the program that calls the hooks has loaded it. If another preloaded wrapper is between this
 * library and the driver, the table gets its functions, so that the wrapper keeps working. From
 * then on the driver stays loaded. Returns whether the table is filled; cheap when it is.
 */
bool cuda_bind(void);

/* The same from a handle of dlopen or dlmopen that leads to a driver which is not in the program's
 * own namespace. Has no effect once the table is filled. */
bool cuda_bind_from(void *handle);

/* In a forked child: releases locks that threads of the parent held. A bound driver stays bound. */
void cuda_forked(void);

/* The driver's own function of that name, even if a wrapper has one, too; NULL if the driver has
 * none, or is not bound. */
void *cuda_driver_symbol(const char *name);
