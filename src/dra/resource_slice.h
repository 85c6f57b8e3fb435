/*
 * The ResourceSlice of a node (resource.k8s.io/v1): its healthy GPUs, each a device that several
 * claims may have parts of, by consumable capacity (the feature gate DRAConsumableCapacity).
 */
#pragma once

#include <json-c/json.h>
#include <stdint.h>

#include "gpus.h"

#define RESOURCE_SLICES "/apis/resource.k8s.io/v1/resourceslices"

/* Whose slice it is. */
struct resource_slice_owner {
	const char *driver, *node, *node_uid;
};

/* The device's name: the GPU's UUID in small letters. */
void resource_slice_device_name(const struct gpu *gpu, char ret_name[VGPU_UUID_LEN]);
/* The GPU with that device name, or NULL. */
const struct gpu *resource_slice_find(const struct gpus *gpus, const char *device);

/* "NODE-DRIVER" */
void resource_slice_name(const struct resource_slice_owner *owner, char *buf, size_t len);

/* The devices, an array. */
struct json_object *resource_slice_devices(const struct gpus *gpus);

/* The slice with these devices, which it takes. version: of the object that it replaces, or NULL.
 */
struct json_object *resource_slice_make(const struct resource_slice_owner *owner,
					struct json_object *devices, int64_t generation,
					const char *version);
