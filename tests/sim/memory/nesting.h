/*
 * A wrapper between the library and the driver, as tools have them: it makes and ends contexts
 * inside calls that make or end one.
 */
#pragma once

enum nesting {
	NESTING_NONE,
	NESTING_PRIMARY, /* retains the primary context of device 0 */
	NESTING_OTHER,   /* makes a context, and ends it */
	NESTING_SAME,    /* makes the context itself by the same call, which it passes on once */
};

#include "cuda_abi.h"

/* Destroys it by the driver's function, which the library does not see. */
__attribute__((visibility("default"))) CUresult nesting_destroy_exec(CUgraphExec exec);

/* Inside the next call. */
__attribute__((visibility("default"))) void nesting_set(enum nesting nesting);
