/* The node's GPUs and their health, by NVML, which stays open. GPUs in MIG mode are left
 * out. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"
#include "vgpu_region.h"
#include "xids.h"

struct gpu {
	char uuid[VGPU_UUID_LEN];
	char name[96];        /* of the product; "": not known */
	unsigned index;       /* NVML's index */
	int minor;            /* of /dev/nvidiaN, or -1: not known */
	int numa;             /* its NUMA node, or -1: not known */
	uint64_t total_bytes; /* size of its memory; 0: not known */
	unsigned xid;         /* the critical error that makes it unhealthy; 0: none */
	bool healthy;
};

struct gpus {
	unsigned count;
	struct gpu gpu[VGPU_DEVICES_MAX]; /* only their health changes after gpus_open */
	unsigned left_out;                /* GPUs in MIG mode, or beyond VGPU_DEVICES_MAX */
	struct gpus_library *library;
	struct xids *xids; /* NULL: NVML has no events */
	const struct xids_ignored *ignored;
};

/* Opens NVML and finds the GPUs; it logs each that is unhealthy. ignored: the XIDs that leave a
 * GPU healthy; it must live until gpus_close. Returns 0, or a negative errno with a fault. */
int gpus_open(struct gpus *ret_gpus, const struct xids_ignored *ignored, struct fault *fault);
void gpus_close(struct gpus *gpus); /* accepts a zeroed one */

/* Asks for the GPUs' health. Returns whether any has changed, and then logs the unhealthy ones
 * and why. */
bool gpus_look(struct gpus *gpus);
