/*
 * The list of hooks: the hooked rows of api/cuda.def and api/nvml.def, and the loader's dlsym,
 * dlvsym and dlopen. The files that hand out functions (dlsym.c, getproc.c, deepbind.c) ask here.
 */
#pragma once

#include "cuda_abi.h"
#include "nvml_abi.h"

enum hook_origin { HOOK_OF_CUDA, HOOK_OF_NVML, HOOK_OF_LIBC };

struct hook {
	const char *name;
	void *ours;
	enum hook_origin origin;
};

/* The hook of that name, or NULL, as for nearly every name. */
const struct hook *hook_named(const char *name);

/*
 * The hook whose original is at this address, or NULL. The original is the driver's own function,
 * or that of a wrapper between this library and the driver. Names do not matter here, so versions,
 * _ptsz variants and equal names in other libraries need no rule of their own. Only originals of
 * `origin` are searched, and only that library is loaded or bound for it.
 */
const struct hook *hook_of_pointer(enum hook_origin origin, const void *original);

/* The function of the hook's name in the driver (or libc) that this process has loaded; NULL: there
 * is none. */
void *hook_original(const struct hook *hook);

/* In a forked child: releases the lock. An index that was half filled is filled again. */
void hooks_forked(void);

/* The hooks, which the library exports. */
#define EXPORT                                      __attribute__((visibility("default")))
#define CU_HOOK(name, class, parameters, arguments) EXPORT CUresult name parameters;
#include "cuda.def"
#define NVML_HOOK(name, parameters, arguments) EXPORT nvmlReturn_t name parameters;
#include "nvml.def"
EXPORT void *dlsym(void *handle, const char *name);
EXPORT void *dlvsym(void *handle, const char *name, const char *version);
EXPORT void *dlopen(const char *path, int mode);
EXPORT __attribute__((noreturn)) void _exit(int status);
