/* The pids of the machine's processes in the caller's pid namespace. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* Opens a file of the simulated machine, and makes it if it does not exist. The descriptor is never
 * one of the first three, which the application may have closed. Returns it, or a negative errno.
 */
int pids_file_open(const char *path);

/* This process has claimed the slot. It keeps the slot's lock until its death. */
void pids_record(const char *state_path, unsigned slot);

/* The pid namespace of the calling process; 0: it cannot be found out. */
uint64_t pids_space(void);

/* The pid of the slot's living owner in the caller's pid namespace; 0: it is not in that namespace.
 * The owner's own pid is `own`, in the pid namespace `space`. */
unsigned pids_of(const char *state_path, unsigned slot, unsigned own, uint64_t space);

/* In a forked child. */
void pids_forked(void);
