/* The pids of the machine's processes, as whoever asks knows them. */
#pragma once

#include <sys/types.h>

/* This process has the slot. Its lock is kept to its death. */
void pids_record(const char *state_path, unsigned slot);

/* The pid of the slot's living owner, who calls itself `own`, in the pid namespace of who asks; 0
 * where it is not in that. */
unsigned pids_of(const char *state_path, unsigned slot, unsigned own);

/* In a forked child. */
void pids_forked(void);
