/*
 * The use of the machine's GPUs by all processes, from NVML. NVML stays open from one look to
 * the next. If the driver does not have a figure, the figure is "not known"; that is no
 * failure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"
#include "vgpu_region.h"

#define USAGE_UNKNOWN_BYTES UINT64_MAX

/* A process that NVML lists on a GPU. */
struct usage_process {
	unsigned pid;   /* NVML's figure: in this pid namespace, or in the host's */
	uint64_t bytes; /* memory on the GPU; USAGE_UNKNOWN_BYTES: not known */
	int busy_pct;   /* share of the GPU's time, 0 to 100; -1: not known */
};

struct usage_gpu {
	unsigned index; /* as NVML counts */
	char uuid[VGPU_UUID_LEN];
	char name[96];                    /* the product's name; "": not known */
	uint64_t total_bytes, used_bytes; /* both 0: not known */
	int busy_pct;                     /* the GPU is busy, 0 to 100; -1: not known */
	/* Whether busy_pct of processes is known. A process without an entry then has 0. */
	bool knows_busy;
	/* The least length of turns that vgpud sets under memory pressure; 0: none. */
	uint64_t turn_least_ns;
	unsigned process_count;
	struct usage_process *process;
};

struct usage {
	unsigned gpu_count;
	struct usage_gpu *gpu;
};

/* NVML, opened. One thread may use it. */
struct usage_source;

/* Opens NVML. Returns NULL with a fault if there is no NVML, if it does not start, or if there
 * is no memory. */
struct usage_source *usage_open(struct fault *fault);
void usage_close(struct usage_source *source); /* source may be NULL */

/* Takes a look at all GPUs. GPUs that do not answer are left out. The processes' shares are
 * those since the last look of this source; at the first look, those of the last second. The
 * caller frees the result with usage_free. */
void usage_take(struct usage_source *source, struct usage *ret_usage);
void usage_free(struct usage *usage); /* usage may be zeroed */
