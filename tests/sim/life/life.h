/*
 * Shared by the tests of a program's life, in addition to the fixture of tests/sim/memory: a
 * program that runs itself in a role, words that all descendants see, and the driver's
 * descriptors.
 */
#pragma once

#include "cuda_api.h"

/* Bytes on the device because of a process with a context, by NVML, in its own figure and
 * outside. The 9 MiB outside are charged as HIDDEN. */
#define OUTSIDE (CONTEXT + 9 * MIB)

/* -- roles of the program (TEST_ROLE of harness.h) --------------------------------------------- */

/* The arguments that start this program in a role, with up to two arguments of the role's
 * own. */
char **role_arguments(const char *role, const char *first, const char *second);
/* Executes this program in that role, and does not return. */
_Noreturn void role_exec(const char *role, const char *first);
/* Starts this program in that role by posix_spawn. preload: another library than this process's
 * own, or NULL. */
pid_t role_spawn(const char *role, const char *first, const char *preload);

/* -- the board: words that this process and all its descendants share ---------------------------
 */

void board_open(void);
void board_write(unsigned place, uint64_t word);
uint64_t board_read(unsigned place);
void board_wait(unsigned place, uint64_t word); /* waits WAIT_S at most */

/* -- the quota --------------------------------------------------------------------------------- */

/* Sets a quota for that many processes with a context, and data_bytes of data for all
 * together. */
void set_quota(unsigned processes, uint64_t data_bytes);
/* Allocates as soon as there is room. */
CUdeviceptr take_soon(uint64_t bytes);
/* Checks in the ledger and outside that one process with a context exists, with data_bytes of
 * data. */
void assert_alone_with(uint64_t data_bytes);
/* Checks in the ledger and outside that no process is left. */
void assert_nobody(void);
/* The body of a thread: makes the context current, and allocates and frees until
 * stop_allocating. */
void *allocate_and_free(void *context);
extern bool stop_allocating; /* atomic */

/* -- descriptors ------------------------------------------------------------------------------- */

/* Closes every descriptor from `first` on, as a careless application does. It leaves the tests'
 * wires and the simulated driver's state open: an application that closes the driver's
 * descriptors breaks the driver. */
void close_all(int first);
/* Finds this process's descriptor of the file, or -1. */
int descriptor_of(const char *path);
