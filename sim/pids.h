/* The pids of the machine's processes, as whoever asks knows them. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* A file of the machine's, made if need be. Never as one of the first three descriptors, which are
 * the application's even where it has closed them. A negative errno. */
int pids_file_open(const char *path);

/* This process has the slot. Its lock is kept to its death. */
void pids_record(const char *state_path, unsigned slot);

/* Tells this process's pid namespace from others; 0 where it is not to be had. */
uint64_t pids_namespace(void);

/* The pid of the slot's living owner, who calls itself `own` in that namespace, in the pid
 * namespace of who asks; 0 where it is not in that. */
unsigned pids_of(const char *state_path, unsigned slot, unsigned own, uint64_t own_namespace);

/* In a forked child. */
void pids_forked(void);
