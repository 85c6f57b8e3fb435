/*
 * The ways to ask the dynamic loader for a driver function. The answer depends on the object
 * that asks, so each program and plugin that includes this header has its own copy.
 */
#pragma once

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "check.h"
#include "cuda_abi.h"

#define DRIVER "libcuda.so.1"

/* The first version that a C library of this architecture had. */
#if defined(__x86_64__)
#define LIBC_BASE "GLIBC_2.2.5"
#else
#define LIBC_BASE "GLIBC_2.17"
#endif

typedef void *dlsym_function(void *handle, const char *name);
typedef void *dlopen_function(const char *path, int mode);

static void *opened(const char *path, int mode)
{
	void *handle = dlopen(path, mode);

	CHECK_SAYING(handle, "dlopen: %s", dlerror());
	return handle;
}

static inline void *driver_opened(void)
{
	return opened(DRIVER, RTLD_LAZY);
}

/* The library that has the loader's functions: libdl before glibc 2.34. */
static inline void *libc_opened(void)
{
	unsigned minor = 0;

	sscanf(gnu_get_libc_version(), "2.%u", &minor);
	return opened(minor < 34 ? "libdl.so.2" : "libc.so.6", RTLD_LAZY);
}

static void *by_handle(const char *symbol)
{
	return dlsym(driver_opened(), symbol);
}

static void *by_default(const char *symbol)
{
	return dlsym(RTLD_DEFAULT, symbol);
}

static void *by_next(const char *symbol)
{
	return dlsym(RTLD_NEXT, symbol);
}

static void *by_program(const char *symbol)
{
	return dlsym(opened(NULL, RTLD_LAZY), symbol);
}

/* Opens the library by the path of its file. */
static void *by_path(const char *symbol)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/" DRIVER, getenv("LD_LIBRARY_PATH"));
	return dlsym(opened(path, RTLD_NOW), symbol);
}

static void *by_deepbind(const char *symbol)
{
	return dlsym(opened(DRIVER, RTLD_LAZY | RTLD_DEEPBIND), symbol);
}

static void *by_base_namespace(const char *symbol)
{
	void *handle = dlmopen(LM_ID_BASE, DRIVER, RTLD_LAZY);

	CHECK_SAYING(handle, "dlmopen: %s", dlerror());
	return dlsym(handle, symbol);
}

static void *by_new_namespace(const char *symbol)
{
	static void *handle; /* kept, as there are only 16 namespaces */

	if (!handle)
		handle = dlmopen(LM_ID_NEWLM, DRIVER, RTLD_LAZY);
	CHECK_SAYING(handle, "dlmopen: %s", dlerror());
	return dlsym(handle, symbol);
}

/* -- through a dlsym or dlopen that was itself looked up -- */

static void *through(void *function, const char *symbol)
{
	CHECK_SAYING(function, "there is no dlsym this way");
	return ((dlsym_function *)function)(driver_opened(), symbol);
}

static void *by_next_dlsym(const char *symbol)
{
	return through(dlsym(RTLD_NEXT, "dlsym"), symbol);
}

static void *by_default_dlsym(const char *symbol)
{
	return through(dlsym(RTLD_DEFAULT, "dlsym"), symbol);
}

static void *by_libc_dlsym(const char *symbol)
{
	return through(dlsym(libc_opened(), "dlsym"), symbol);
}

static void *by_next_versioned_dlsym(const char *symbol)
{
	return through(dlvsym(RTLD_NEXT, "dlsym", LIBC_BASE), symbol);
}

static void *by_libc_versioned_dlsym(const char *symbol)
{
	return through(dlvsym(libc_opened(), "dlsym", LIBC_BASE), symbol);
}

static void *by_libc_dlopen(const char *symbol)
{
	void *function = dlsym(libc_opened(), "dlopen");

	CHECK_SAYING(function, "there is no dlopen");
	return dlsym(((dlopen_function *)function)(DRIVER, RTLD_LAZY | RTLD_DEEPBIND), symbol);
}

/* -- through cuGetProcAddress -- */

typedef CUresult get_function(const char *symbol, void **pfn, int version, cuuint64_t flags,
			      CUdriverProcAddressQueryResult *status);

enum { CUDA_OF_TODAY = 13000 };

/* Asks cuGetProcAddress for a symbol, which it knows without "_v2". */
static void *asked_of(get_function *get, const char *symbol)
{
	char plain[128];
	void *address = NULL;
	char *version;

	snprintf(plain, sizeof(plain), "%s", symbol);
	version = strstr(plain, "_v2");
	if (version)
		*version = '\0';
	get(plain, &address, CUDA_OF_TODAY, 0, NULL);
	return address;
}

static void *by_procaddress(const char *symbol)
{
	get_function *get = (get_function *)by_handle("cuGetProcAddress_v2");

	CHECK_SAYING(get, "there is no cuGetProcAddress_v2");
	return asked_of(get, symbol);
}

/* Asks as the CUDA runtime does. */
static void *by_procaddress_of_procaddress(const char *symbol)
{
	get_function *get = (get_function *)by_procaddress("cuGetProcAddress");

	CHECK_SAYING(get, "cuGetProcAddress does not find itself");
	return asked_of(get, symbol);
}

static const struct way {
	const char *name;
	void *(*find)(const char *symbol);
} ways[] = {
	{"handle", by_handle},
	{"default", by_default},
	{"next", by_next},
	{"program", by_program},
	{"path", by_path},
	{"deepbind", by_deepbind},
	{"base_namespace", by_base_namespace},
	{"new_namespace", by_new_namespace},
	{"next_dlsym", by_next_dlsym},
	{"default_dlsym", by_default_dlsym},
	{"libc_dlsym", by_libc_dlsym},
	{"next_versioned_dlsym", by_next_versioned_dlsym},
	{"libc_versioned_dlsym", by_libc_versioned_dlsym},
	{"libc_dlopen", by_libc_dlopen},
	{"procaddress", by_procaddress},
	{"procaddress_of_procaddress", by_procaddress_of_procaddress},
};

static inline const struct way *way_named(const char *name)
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (strcmp(ways[i].name, name) == 0)
			return &ways[i];
	check_failed_saying(__FILE__, __LINE__, "no such way: %s", name);
}
