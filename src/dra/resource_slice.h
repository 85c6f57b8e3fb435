/*
 * Makes the ResourceSlice of a node (resource.k8s.io/v1) with its healthy GPUs. Each is a
 * device of which several claims may have parts, by consumable capacity (the feature gate
 * DRAConsumableCapacity).
 */
#pragma once

#include <json-c/json.h>
#include <stdint.h>

#include "gpus.h"

#define RESOURCE_SLICES "/apis/resource.k8s.io/v1/resourceslices"

/* The driver and the node that the slice belongs to. */
struct resource_slice_owner {
	const char *driver, *node, *node_uid;
};

/* The GPU's device name: its UUID in lower case. */
void resource_slice_device_name(const struct gpu *gpu, char ret_name[VGPU_UUID_LEN]);
/* The GPU with that device name, or NULL. */
const struct gpu *resource_slice_find(const struct gpus *gpus, const char *device);

/* Writes the slice's name, NODE-DRIVER. */
void resource_slice_name(const struct resource_slice_owner *owner, char *buf, size_t len);

/* Makes the array of devices, which the caller releases with json_object_put(). */
struct json_object *resource_slice_devices(const struct gpus *gpus);

/* Makes the slice, which owns the devices then. version: the resourceVersion of the object that
 * it replaces, or NULL. */
struct json_object *resource_slice_make(const struct resource_slice_owner *owner,
					struct json_object *devices, int64_t generation,
					const char *version);
