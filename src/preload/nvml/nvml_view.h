/* What the files behind NVML's hooks share. */
#pragma once

#include <stdbool.h>

#include "nvml.h"
#include "vgpu_region.h"

/*
 * Whether what NVML says is to be cut to a slice; otherwise every call is NVML's own. First in
 * every hook: it also binds the library, without which there are no originals to call.
 */
bool nvml_shows_slice(void);

/* The device's UUID, "GPU-…" or "MIG-…". False: NVML does not say. */
bool nvml_device_uuid(nvmlDevice_t device, char uuid[VGPU_UUID_LEN]);

void nvml_devices_forget(void); /* in a forked child: the next question lists them anew */
