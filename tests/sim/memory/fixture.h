/*
 * Shared by the tests of the memory quota. A test program has several tests, called scenes.
 * Each scene runs in a process of its own that has not called CUDA yet. It has a simulated
 * machine (VGPU_SIM_STATE) and a slice (CUDA_DEVICE_MEMORY_SHARED_CACHE) of its own, and sets
 * its limits.
 *
 * A program without the preloaded library asks the simulated NVML what the device holds. The
 * ledger is read from the region file, by its published layout.
 */
#pragma once

#include <pthread.h>
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

/* Bytes of a context. CONTEXT is in NVML's figure for the process. HIDDEN is what the slice is
 * charged for memory of the first context of a process that is in no process's figure, and
 * HIDDEN_AGAIN for that of each further context. */
#define CONTEXT      (518 * MIB)
#define HIDDEN       (10 * MIB)
#define HIDDEN_AGAIN (6 * MIB)

/* -- scenes ----------------------------------------------------------------------------------- */

/* Gives each test a machine and a slice of its own. */
extern const struct harness_fixture scene_fixture;
#undef TEST_FIXTURE
#define TEST_FIXTURE &scene_fixture

extern char scene_dir[64]; /* the scene's directory, removed after the scene */

/* A path in scene_dir. The buffer is used again after a few calls. */
const char *scene_path(const char *name);
void scene_write(const char *name, const char *text);
void env_set(const char *name, const char *value); /* NULL unsets it */
void limit_set(uint64_t bytes);                    /* CUDA_DEVICE_MEMORY_LIMIT, of each GPU */
/* Writes the slice's policy on a GPU (its UUID) or on the slice ("slice"). */
void policy_write(const char *entry, const char *text);
const char *gpu_uuid(unsigned gpu);

/* -- other processes -------------------------------------------------------------------------- */

/* A forked process, and a socket to it. */
struct member {
	pid_t pid;
	int wire;
	int departure; /* see tests/unit/departure.h */
};

/* The body's process exits with 0 when it returns. */
struct member member_start(void (*body)(int wire));
void tell(int wire, uint64_t word);
uint64_t hear(int wire); /* fails after WAIT_S seconds, or if the other end is closed */

/* Between a process and its members, each of which says one word when it is ready. */
struct member member_begin(void (*body)(int wire)); /* starts it, and waits until it is ready */
uint64_t say_ready(int wire); /* says that this member is ready, and returns the next word */
uint64_t member_ask(const struct member *member, uint64_t word); /* tells the word; the answer */
void member_finish(struct member *member); /* tells it 0, and expects that it exits with 0 */

int member_wait(struct member *member); /* waits for its end; the status of waitpid(2) */
void member_end(struct member *member); /* it must have exited with 0 */
void member_kill(struct member *member);

#define WAIT_S 100 /* seconds; longer than any step takes on a busy machine */

/* Waits for a forked child, and checks the status of waitpid(2). */
void expect_status(pid_t child, int status);
#define expect_ended(child) expect_status(child, 0)

/* The output of a process that has exited. */
struct said {
	int status; /* of waitpid(2) */
	char out[4096], err[4096];
};

struct said member_listen(void (*body)(void));
unsigned lines_in(const char *text);

uint64_t now_ms(void);
void sleep_ms(unsigned ms);

/* -- threads ---------------------------------------------------------------------------------- */

#define THREADS_MAX 16

struct threads {
	pthread_t thread[THREADS_MAX];
	unsigned count;
};

/* Starts that many threads, each with its number from 0 on. */
struct threads threads_start(unsigned count, void *(*body)(void *number));
void threads_join(struct threads threads);

/* -- the truth, and the view ------------------------------------------------------------------ */

struct figures {
	int result; /* nvmlReturn_t */
	uint64_t total, free, used;
};

/* Bytes in use on the GPU, as NVML reports them to a program without the library. */
uint64_t outside_used(unsigned gpu);
/* Bytes of a process on the GPU, as NVML reports them to a program without the library. */
uint64_t outside_of(unsigned gpu, pid_t pid);
/* Begins to record the most bytes that are in use on the GPU at any moment. */
void outside_peak_begin(unsigned gpu);
/* Returns the record since outside_peak_begin, and begins a new one. */
uint64_t outside_peak(unsigned gpu);

/* NVML's memory info for a program with the library that never calls CUDA. version: 1 or 2 of the
 * call. */
struct figures inside(unsigned gpu, int version);

/* -- the ledger ------------------------------------------------------------------------------- */

const struct vgpu_region_file *ledger(void);
unsigned ledger_index(unsigned gpu);
/* The slot of the process, or -1. */
int ledger_slot(pid_t pid);
struct vgpu_hami_usage ledger_of(pid_t pid, unsigned gpu);
struct vgpu_hami_usage ledger_own(unsigned gpu);
uint64_t ledger_used(unsigned gpu);
uint64_t ledger_context_cost(unsigned gpu);
/* Clears the slots of dead processes, and checks the region. Returns how many processes live. */
unsigned ledger_reap(void);
bool ledger_slot_lives(unsigned slot);
