/*
 * What the tests of fills and copies share: a list of all the functions that are held, each
 * callable through a pointer, as launch.h has it. Each writes COPY_BYTES times COPY_MARK into
 * `here`, or has to do with arrays.
 */
#pragma once

#include "launch.h"

#define COPY_BYTES 256
#define COPY_MARK  0x5a

extern CUdeviceptr here, there; /* MIB each, below 4 GiB */
extern unsigned char *page_locked;
extern CUarray array_here, array_there;

#define COPIERS 64
extern const struct launcher copiers[COPIERS];

/* launch_start, and all of the above. `there` is full of COPY_MARK. */
void copies_start(const char *limit);

/* There and back, by each function that says in its name that it is between host and device. */
void copies_with_host(unsigned char *host, size_t bytes);

static inline bool copies_arrays(const struct launcher *copier)
{
	return strstr(copier->name, "Ato") || strstr(copier->name, "toA");
}
