/*
 * Which functions we stand in front of. The list is made of the tables' hooked rows, and of the
 * loader's dlsym, dlvsym and dlopen. Everything that hands out functions (dlsym.c, getproc.c,
 * deepbind.c) asks here.
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

/* The hook of that name, or NULL: nearly every name in the world has none. */
const struct hook *hook_named(const char *name);

/*
 * The hook whose original is at this address: the driver's own function, or that of a wrapper that
 * stands between us and the driver. Names do not matter here, so versions, _ptsz flavours and other
 * libraries' names come out right by construction. NULL if it is none of ours. origin says
 * which library's functions to look among: only that one is looked for.
 */
const struct hook *hook_of_pointer(enum hook_origin origin, const void *original);

/* Whether the driver (or libc) that this process has loaded has a function of the hook's name. */
void *hook_original(const struct hook *hook);

/* In a forked child: lets go of the lock; an index that was half filled is filled again. */
void hooks_forget(void);

/* Our definitions, as they are exported. */
#define EXPORT                                      __attribute__((visibility("default")))
#define CU_HOOK(name, class, parameters, arguments) EXPORT CUresult name parameters;
#include "cuda.def"
#define NVML_HOOK(name, parameters, arguments) EXPORT nvmlReturn_t name parameters;
#include "nvml.def"
EXPORT void *dlsym(void *handle, const char *name);
EXPORT void *dlvsym(void *handle, const char *name, const char *version);
EXPORT void *dlopen(const char *path, int mode);
EXPORT __attribute__((noreturn)) void _exit(int status);
