/* Local memory: the memory that each thread of a kernel has for itself, beyond registers. */
#pragma once

#include <stdint.h>

#include "cuda_abi.h"

/* How many threads the device can have at a time; 0: the driver does not say. */
uint64_t local_threads(CUdevice device);

/*
 * Before functions or kernels are handed out that may be launched in the current context: reserves
 * the local memory that the most demanding of them will take. CUDA_SUCCESS, or the error for a lack
 * of room.
 */
CUresult local_of_functions(const CUfunction *functions, unsigned count);
CUresult local_of_kernels(const CUkernel *kernels, unsigned count);

/* Before the first launch of a function or kernel in the context of the stream: reserves its local
 * memory. Nothing is reserved for a handle that the table of lazy_code.h does not have. */
CUresult local_of_launch(const void *handle, CUstream stream);

/* The stack size of the current context was set to `bytes`, and the driver has taken the memory. */
void local_of_stacks(uint64_t bytes);

void local_end_context(CUcontext context);
void local_forked(void); /* in a forked child */
