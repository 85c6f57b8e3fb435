/* The node's GPUs and their health, by NVML, which stays open. GPUs in MIG mode are left out. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"
#include "vgpu_region.h"
#include "xids.h"

struct gpu {
	char uuid[VGPU_UUID_LEN];
	char name[96];        /* the product's, or "": not known */
	unsigned index;       /* NVML's */
	int minor;            /* of /dev/nvidiaN, or -1: not known */
	int numa;             /* its NUMA node, or -1: not known */
	uint64_t total_bytes; /* of its memory, 0: not known */
	unsigned xid;         /* the critical error that makes it unhealthy; 0: none */
	bool healthy;
};

struct gpus {
	unsigned count;
	struct gpu gpu[VGPU_DEVICES_MAX]; /* they stay as they were found, but for their health */
	unsigned left_out;                /* GPUs in MIG mode, or one too many */
	struct gpus_library *library;
	struct xids *xids; /* NULL: NVML has no events */
	const struct xids_ignored *ignored;
};

/* Opens NVML, and finds them. ignored: the critical errors that leave a GPU healthy; it is used
 * until gpus_close. A line for each that is unhealthy. A negative errno with a fault. */
int gpus_open(struct gpus *ret_gpus, const struct xids_ignored *ignored, struct fault *fault);
void gpus_close(struct gpus *gpus); /* also of a zeroed one */

/* Asks for their health. Whether that of any changed: a line then says who is unhealthy, and why.
 */
bool gpus_look(struct gpus *gpus);
