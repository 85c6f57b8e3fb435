/*
 * The dynamic loader's own dlsym, dlopen and related functions. They are found by a walk over the
 * loaded objects, not imported. glibc has moved them between libraries and given them new versions,
 * so an import would keep this library from loading on either older or newer glibc. The walk starts
 * after this library, because it exports the first three names itself.
 */
#pragma once

struct libc_functions {
	void *(*dlsym)(void *handle, const char *name);
	void *(*dlvsym)(void *handle, const char *name, const char *version);
	void *(*dlopen)(const char *path, int mode);
	int (*dlclose)(void *handle);
	char *(*dlerror)(void);
	int (*dlinfo)(void *handle, int request, void *info);
};

/* The functions of libc itself. Never NULL as a whole; members that were not found are NULL. */
const struct libc_functions *libc_functions(void);

/* The functions of the same names that follow this library in load order: another wrapper's, or
 * libc's. Calls that this library does not change are passed on to them. */
const struct libc_functions *next_functions(void);
