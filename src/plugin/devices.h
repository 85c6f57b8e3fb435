/*
 * The devices of one resource that the kubelet sees: for each of its GPUs, as many as the slice
 * has replicas. A device's ID is GPU-UUID::NAME::N, where NAME is the slice's name and N counts
 * from 0. An ID stays the same over restarts, as long as the GPU and the slice's name do.
 */
#pragma once

#include "config.h"
#include "gpus.h"

#define DEVICES_ID_LEN (VGPU_UUID_LEN + CONFIG_NAME_LEN + 16)

struct devices {
	const struct config_slice *slice;
	const struct gpus *gpus;
	unsigned gpu_count;
	unsigned gpu[VGPU_DEVICES_MAX]; /* indexes in gpus->gpu, in rising order */
};

/* Finds the devices of a slice. Returns 0; or -ENODEV with a fault: the slice names a GPU that
 * does not exist. config and gpus must live as long as the devices. */
int devices_find(const struct config_slice *slice, const struct gpus *gpus,
		 struct devices *ret_devices, struct fault *fault);

/* Whether the memory of all slices of the configuration fits on their GPUs. Returns 0, or
 * -ENOSPC with a fault. It is not called if the configuration overcommits. */
int devices_fit(const struct config *config, const struct gpus *gpus, struct fault *fault);

/* Writes the ID of a device. gpu: the index in gpus->gpu; replica: N. */
void devices_id(const struct devices *devices, unsigned gpu, unsigned replica,
		char ret_id[DEVICES_ID_LEN]);
/* Finds the device with that ID: its GPU's index in gpus->gpu, and N. Returns false if there is
 * none. */
bool devices_parse(const struct devices *devices, const char *id, unsigned *ret_gpu,
		   unsigned *ret_replica);
