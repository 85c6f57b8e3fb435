/*
 * A library of the driver that the process has loaded: libcuda or NVML. cuda.c and nvml.c share
 * this code, which finds the library. It also distinguishes the library's own functions from those
 * of wrappers that are preloaded after libvgpu.so.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lock.h"
#include "objects.h"

#define LIBRARY_FUNCTIONS_MAX 384

struct library {
	const char *soname;
	const char *rarities[3]; /* names that the library exports and no wrapper has a reason to
				    define */
	const char *const *names;
	void **table; /* the functions that are called, in the order of names */
	size_t count;

	struct lock publishing; /* guards what follows, and the table */
	bool bound;             /* release when all is there, acquire before anything is read */
	struct object object; /* all zero when it is of another namespace: then there is a handle */
	void *handle;
};

/*
 * Finds the library among the loaded objects by its DT_SONAME, keeps it loaded from then on, and
 * fills the table. A function that the library lacks leaves its place as it is. This function never
 * loads the library: the program that uses it has. Returns whether it is bound; an atomic load when
 * it is.
 */
bool library_bind(struct library *library);

/* The same through a handle of dlopen or dlmopen, for one that is not in the program's namespace.
 */
bool library_bind_from(struct library *library, void *handle);

/* The library's own function, even if a wrapper has one, too; NULL if the library has none, or is
 * not bound. */
void *library_symbol(const struct library *library, const char *name);

void library_forked(struct library *library); /* in a forked child: releases the lock */
