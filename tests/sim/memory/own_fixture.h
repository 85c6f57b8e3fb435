/* Shared by the tests of memory that the driver takes for itself: code, stacks and others. */
#pragma once

#include "cuda_api.h"

#define MODULE (20 * MIB)
#define STACK  ((uint64_t)132 * 2048) /* bytes for each byte of a thread's stack */

/* Code for the device, as PTX. */
extern const char code[];

CUcontext start(const char *limit);
/* The same, and code takes module_mib MiB instead of MODULE. */
CUcontext start_with_code(const char *limit, const char *module_mib);
/* Waits until the next comparison with NVML has been made. */
void rest(void);
void assert_books(uint64_t module, uint64_t data);
void assert_stack(size_t bytes);
/* Allocates all that is left but `bytes`. */
CUdeviceptr leave(uint64_t bytes);

/* Six ways to load code of MODULE bytes, and to unload it. */
#define LOADERS 6

union loaded {
	CUmodule module;
	CUlibrary lib;
	void *any;
};

CUresult load(unsigned loader, union loaded *ret_loaded);
CUresult try_unload(unsigned loader, union loaded loaded);
void unload(unsigned loader, union loaded loaded); /* checks that it succeeds */

/* Launches a kernel without parameters in the default stream. */
static inline void launch(CUfunction function)
{
	CHECK_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}
