/*
 * Shared by the tests of fills and copies: a list of all functions that a quota throttles, each
 * callable through a pointer (launch.h). Each writes COPY_BYTES times COPY_MARK into `here`, or
 * works on arrays.
 */
#pragma once

#include "launch.h"

#define COPY_BYTES 256
#define COPY_MARK  0x5a

extern CUdeviceptr here, there; /* 1 MiB each, below 4 GiB */
extern unsigned char *page_locked;
extern CUarray array_here, array_there;

#define COPIERS 64
extern const struct launcher copiers[COPIERS];

/* Calls launch_start, and makes all of the above. `there` is full of COPY_MARK. */
void copies_start(const char *limit);

/* Copies to the device and back, by each function whose name says that it copies between host
 * and device. */
void copies_with_host(unsigned char *host, size_t bytes);

static inline bool copies_arrays(const struct launcher *copier)
{
	return strstr(copier->name, "Ato") || strstr(copier->name, "toA");
}
