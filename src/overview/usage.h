/*
 * The use of the machine's GPUs by any process, from NVML, which stays open from one look to the
 * next. A figure that a driver does not have is "not known" here, and no failure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"
#include "vgpu_region.h"

#define USAGE_UNKNOWN_BYTES UINT64_MAX

struct usage_process {
	unsigned pid;   /* NVML's: of this pid namespace, or of the host's */
	uint64_t bytes; /* USAGE_UNKNOWN_BYTES: not known */
	int busy_pct;   /* share of the GPU's time; -1: not known */
};

struct usage_gpu {
	unsigned index; /* NVML's */
	char uuid[VGPU_UUID_LEN];
	char name[96];
	uint64_t total_bytes, used_bytes; /* both 0: not known */
	int busy_pct;                     /* -1: not known */
	/* busy_pct of processes is known; it is 0 for a process that is not listed. */
	bool knows_busy;
	uint64_t turn_least_ns; /* least length of turns, from vgpud under memory pressure; 0: none
				 */
	unsigned process_count;
	struct usage_process *process;
};

struct usage {
	unsigned gpu_count;
	struct usage_gpu *gpu;
};

struct usage_source;

/* Opens NVML. NULL with a fault: there is no NVML, or it does not start. */
struct usage_source *usage_open(struct fault *fault);
void usage_close(struct usage_source *source); /* also of NULL */

/* Takes a look. Busy times are those since the last look, or of the last second. */
void usage_take(struct usage_source *source, struct usage *ret_usage);
void usage_free(struct usage *usage); /* also of a zeroed one */
