/* Declarations that the files with NVML's hooks share. */
#pragma once

#include <stdbool.h>

#include "nvml.h"
#include "vgpu_region.h"

/*
 * Whether NVML's answers are to be reduced to a slice; otherwise every call goes to NVML unchanged.
 * Each hook calls this first, as it also binds NVML, without which there are no originals to call.
 */
bool nvml_shows_slice(void);

/* The device's UUID, "GPU-…" or "MIG-…". False: NVML does not say. */
bool nvml_device_uuid(nvmlDevice_t device, char uuid[VGPU_UUID_LEN]);

void nvml_devices_forked(void); /* in a forked child: the next query makes the tables again */
