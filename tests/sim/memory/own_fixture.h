/* What the tests of what the driver takes on its own account share. */
#pragma once

#include "cuda_api.h"

#define MODULE (20 * MIB)
#define STACK  ((uint64_t)132 * 2048) /* of a byte a thread */

/* A program for the device, as text. */
extern const char code[];

CUcontext start(const char *limit);
/* The same with code of another size than MODULE. */
CUcontext start_with_code(const char *limit, const char *module_mib);
/* At rest: the next comparison has been made. */
void rest(void);
void assert_books(uint64_t module, uint64_t data);
void assert_stack(size_t bytes);
/* Takes what is left but for some MiB. */
CUdeviceptr leave(uint64_t bytes);

/* Six ways to load code, each of MODULE bytes, and what each is unloaded by. */
#define LOADERS 6

union loaded {
	CUmodule module;
	CUlibrary lib;
	void *any;
};

CUresult load(unsigned loader, union loaded *ret_loaded);
void unload(unsigned loader, union loaded loaded);
