/*
 * The dynamic loader's own dlsym, dlopen and what goes with them. Found by walking the loaded
 * objects and not imported: glibc has moved them between libraries and given them new versions, and
 * an import of either kind would keep us from loading on the other side of that. And found behind
 * us, because we export the first three names ourselves.
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

/* What follows us in load order under the same names: another wrapper's, or libc's. Where calls
 * that we have nothing to say to go on to. */
const struct libc_functions *next_functions(void);
