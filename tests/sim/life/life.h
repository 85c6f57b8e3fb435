/*
 * What the tests of a program's life share, beside the fixture of tests/sim/memory: a program that
 * runs itself in a role, words that all descendants see, descriptors that are the driver's.
 */
#pragma once

#include "cuda_api.h"

/* What NVML counts of a process with a context, and beside it: HIDDEN is what is charged for 9 MiB.
 */
#define OUTSIDE (CONTEXT + 9 * MIB)

/* -- roles (TEST_ROLE of harness.h): what the program is when a scene started it --------------- */

/* The arguments of this program in a role, with up to two of the role's own. */
char **role_arguments(const char *role, const char *first, const char *second);
/* Becomes the program in that role; does not return. */
_Noreturn void role_exec(const char *role, const char *first);
/* Starts it by posix_spawn; preload: another library than this process's own, or NULL. */
pid_t role_spawn(const char *role, const char *first, const char *preload);

/* -- processes --------------------------------------------------------------------------------- */

void expect_status(pid_t child, int status); /* of waitpid(2) */
#define expect_ended(child) expect_status(child, 0)

/* -- the board: words that this process and all its descendants share ---------------------------
 */

void board_open(void);
void board_write(unsigned place, uint64_t word);
uint64_t board_read(unsigned place);
void board_wait(unsigned place, uint64_t word); /* WAIT_S at most */

/* -- the quota --------------------------------------------------------------------------------- */

/* What a process has for its data under a quota of so many processes and that much. */
void set_quota(unsigned processes, uint64_t data_bytes);
/* Takes it as soon as there is room. */
CUdeviceptr take_soon(uint64_t bytes);
/* One process with a context has data_bytes: in the ledger, and outside. */
void assert_alone_with(uint64_t data_bytes);
/* Nobody is left, in the ledger or outside. */
void assert_nobody(void);
/* In a thread: makes the context current, and allocates and frees until stop_allocating. */
void *allocate_and_free(void *context);
extern bool stop_allocating; /* atomic */

/* -- descriptors ------------------------------------------------------------------------------- */

/* Closes every descriptor from `first` on as a careless application would, but for the tests' own
 * wires and the simulated driver's state: to close what the driver has open breaks the driver. */
void close_all(int first);
/* This process's descriptor of the file, or -1. */
int descriptor_of(const char *path);
