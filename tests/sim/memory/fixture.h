/*
 * What the tests of the memory quota share. A test program is a list of scenes. Each is played in a
 * process of its own, which has not touched CUDA yet, with a machine (VGPU_SIM_STATE) and a slice
 * (CUDA_DEVICE_MEMORY_SHARED_CACHE) of its own; it sets its limits and goes on from there.
 *
 * The truth comes from outside: from a program that asks the simulated NVML and has no library
 * preloaded. The ledger is read from the region file, through the published layout.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "harness.h"
#include "vgpu_region.h"

#define KIB     ((uint64_t)1 << 10)
#define MIB     ((uint64_t)1 << 20)
#define GIB     ((uint64_t)1 << 30)
#define GRANULE (2 * MIB)

/* What the simulated driver takes for a context: in the process's figure, and beside it; and what
 * the slice is charged for the latter, for the first and for further contexts of a process. */
#define CONTEXT      (518 * MIB)
#define HIDDEN       (10 * MIB)
#define HIDDEN_AGAIN (6 * MIB)

/* -- scenes ----------------------------------------------------------------------------------- */

/* A test is a scene: it gets a machine and a slice of its own. */
extern const struct harness_fixture scene_fixture;
#undef TEST_FIXTURE
#define TEST_FIXTURE &scene_fixture

extern char scene_dir[64]; /* the scene's own; emptied and removed when it is over */

/* A path in scene_dir. The buffer is one of a few that take turns. */
const char *scene_path(const char *name);
void scene_write(const char *name, const char *text);
void env_set(const char *name, const char *value); /* NULL unsets it */
const char *gpu_uuid(unsigned gpu);

/* -- other processes -------------------------------------------------------------------------- */

/* A forked process, and a wire to it. */
struct member {
	pid_t pid;
	int wire;
	int departure; /* see tests/unit/departure.h */
};

/* The body's process exits with 0 when it returns. */
struct member member_start(void (*body)(int wire));
void tell(int wire, uint64_t word);
uint64_t hear(int wire); /* fails after WAIT_S seconds of silence, or when the other end is gone */
int member_wait(struct member *member); /* the status of waitpid(2), when it is gone for good */
void member_end(struct member *member); /* it must have exited with 0 */
void member_kill(struct member *member);

#define WAIT_S 100 /* no machine is so busy: what has not happened by then, never will */

/* What a process said before it exited. */
struct said {
	int status; /* of waitpid(2) */
	char out[4096], err[4096];
};

struct said member_listen(void (*body)(void));
unsigned lines_in(const char *text);

uint64_t now_ms(void);
void sleep_ms(unsigned ms);

/* -- the truth, and the view ------------------------------------------------------------------ */

struct figures {
	int result; /* nvmlReturn_t */
	uint64_t total, free, used;
	uint64_t samples;
};

/* What NVML's memory info says of the GPU, to a program without the library. */
uint64_t outside_used(unsigned gpu);
/* What it counts for a process. */
uint64_t outside_of(unsigned gpu, pid_t pid);
/* From begin to end, the highest outside_used, looked at all the time. */
void outside_watch(unsigned gpu);
/* The same without a core of its own: every so many ms. */
void outside_watch_every(unsigned gpu, unsigned pause_ms);
struct figures outside_watched(void);

/* What NVML says to a program with the library that never uses CUDA; version 1 or 2 of the call. */
struct figures inside(unsigned gpu, int version);

/* -- the ledger ------------------------------------------------------------------------------- */

const struct vgpu_region_file *ledger(void);
unsigned ledger_index(unsigned gpu);
/* Which slot the process has, or -1. */
int ledger_slot(pid_t pid);
struct vgpu_hami_usage ledger_of(pid_t pid, unsigned gpu);
struct vgpu_hami_usage ledger_own(unsigned gpu);
uint64_t ledger_used(unsigned gpu);
uint64_t ledger_context_cost(unsigned gpu);
/* Clears the dead; then everything that always holds must hold. How many live. */
unsigned ledger_reap(void);
bool ledger_slot_lives(unsigned slot);
