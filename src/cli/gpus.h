/* The machine's GPUs, by NVML, and which of them somebody means. */
#pragma once

#include <stdint.h>

#include "fault.h"
#include "vgpu_region.h"

#define GPUS_MAX 64

struct gpu {
	unsigned index; /* NVML's */
	char uuid[VGPU_UUID_LEN];
	uint64_t memory_bytes; /* all that it has */
};

struct gpus {
	unsigned count;
	struct gpu gpu[GPUS_MAX];
};

/* All of them, in NVML's order; at least one. -ENOENT without a driver, -EIO when NVML fails. */
int gpus_find(struct gpus *ret_gpus, struct fault *fault);

/*
 * Those that list names, in its order: commas between indices, UUIDs and what only one UUID starts
 * with; or "all". -EINVAL with a fault when an entry names none, several or one that is there
 * already.
 */
int gpus_select(const struct gpus *all, const char *list, struct gpus *ret_selected,
		struct fault *fault);

/* The GPU with that UUID, or NULL. */
const struct gpu *gpus_by_uuid(const struct gpus *gpus, const char *uuid);
