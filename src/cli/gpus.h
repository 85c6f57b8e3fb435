/* The machine's GPUs, by NVML, and which of them somebody means. */
#pragma once

#include <stdint.h>

#include "fault.h"
#include "nvml_abi.h"
#include "vgpu_region.h"

#define GPUS_MAX           64
#define GPUS_INSTANCES_MAX 8 /* of a GPU in MIG mode: so many there can be */

struct gpu {
	unsigned index; /* NVML's */
	char uuid[VGPU_UUID_LEN];
	uint64_t memory_bytes; /* all that it has */
};

struct gpus {
	unsigned count;
	struct gpu gpu[GPUS_MAX];
};

/* How a GPU is set; a mode is -1 where NVML does not say. */
struct gpu_modes {
	int mig, persistence; /* 1 on, 0 off */
	int compute;          /* nvmlComputeMode_t */
	unsigned instance_count;
	char instance[GPUS_INSTANCES_MAX][VGPU_UUID_LEN]; /* UUIDs, "MIG-…" */
};

/* The driver's versions, and the settings of each GPU. */
struct gpus_driver {
	char version[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE]; /* "": not known */
	int cuda;                         /* the newest CUDA; 13000 is 13.0; 0: not known */
	struct gpu_modes modes[GPUS_MAX]; /* modes[i] are those of gpus.gpu[i] */
};

/* Finds all GPUs of the machine, in NVML's order. Returns 0, and at least one GPU; or with a
 * fault -ENOENT (there is no driver, or no GPU) or -EIO (NVML fails). */
int gpus_find(struct gpus *ret_gpus, struct fault *fault);
/* As gpus_find, also with the driver's versions and the GPUs' settings. */
int gpus_examine(struct gpus *ret_gpus, struct gpus_driver *ret_driver, struct fault *fault);

/*
 * Selects the GPUs that `list` names, in its order. The list has commas between indices, ranges of
 * indices ("0-2"), UUIDs, and prefixes that only one UUID has; or it is "all". -EINVAL with a fault
 * when an entry names no GPU, several, or one that is there already.
 */
int gpus_select(const struct gpus *all, const char *list, struct gpus *ret_selected,
		struct fault *fault);
/* The list's form alone, for a look at the command line before one at the machine: 0, or -EINVAL
 * with a fault. */
int gpus_check_list(const char *list, struct fault *fault);

/* The GPU with that UUID, or NULL. */
const struct gpu *gpus_by_uuid(const struct gpus *gpus, const char *uuid);
