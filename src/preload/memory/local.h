/* Local memory: what each thread of a kernel has for itself beyond registers. */
#pragma once

#include <stdint.h>

#include "cuda_abi.h"

/* How many threads the device can have at a time; 0: it does not say. */
uint64_t local_threads(CUdevice device);

/*
 * The application is to be given functions, or kernels, that may be launched in the current
 * context: reserves what local memory the most demanding of them will take. CUDA_SUCCESS, or that
 * there is no room.
 */
CUresult local_of_functions(const CUfunction *functions, unsigned count);
CUresult local_of_kernels(const CUkernel *kernels, unsigned count);

/* The current context's stacks have so many bytes now, and the memory for them is taken. */
void local_of_stacks(uint64_t bytes);

void local_end_context(CUcontext context);
void local_forget(void); /* in a forked child */
