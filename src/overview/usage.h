/*
 * How the machine's GPUs are used just now, whoever uses them: by NVML, which stays open from one
 * look to the next. What a driver does not tell is "not known" here, and no failure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"
#include "vgpu_region.h"

#define USAGE_UNKNOWN_BYTES UINT64_MAX

struct usage_process {
	unsigned pid;   /* as NVML has it: of this pid namespace, or of the host's */
	uint64_t bytes; /* USAGE_UNKNOWN_BYTES */
	int busy_pct;   /* of the GPU's time, -1: not known */
};

struct usage_gpu {
	unsigned index; /* NVML's */
	char uuid[VGPU_UUID_LEN];
	char name[96];
	uint64_t total_bytes, used_bytes; /* both 0: not known */
	int busy_pct;                     /* -1: not known */
	/* Whether processes' busy_pct is known: that of one that is not listed is 0 then. */
	bool knows_busy;
	uint64_t turn_least_ns; /* of turns on it because of memory pressure, by vgpud; 0: none */
	unsigned process_count;
	struct usage_process *process;
};

struct usage {
	unsigned gpu_count;
	struct usage_gpu *gpu;
};

struct usage_source;

/* Opens NVML. NULL with a fault, where there is none or it does not start. */
struct usage_source *usage_open(struct fault *fault);
void usage_close(struct usage_source *source); /* also of NULL */

/* Looks once. What processes did is told of the time since the last look, or of a second. */
void usage_take(struct usage_source *source, struct usage *ret_usage);
void usage_free(struct usage *usage); /* also of a zeroed one */
