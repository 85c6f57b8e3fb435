/*
 * The devices that the kubelet sees of one resource: a slice of each of its GPUs, so many times
 * over. A device's ID is GPU-UUID::NAME::N, where NAME is the slice's and N counts from 0. It is
 * the same after any restart, as long as the GPU and the slice's name are.
 */
#pragma once

#include "config.h"
#include "gpus.h"

#define DEVICES_ID_LEN (VGPU_UUID_LEN + CONFIG_NAME_LEN + 16)

struct devices {
	const struct config_slice *slice;
	const struct gpus *gpus;
	unsigned gpu_count;
	unsigned gpu[VGPU_DEVICES_MAX]; /* places in gpus->gpu, rising */
};

/* Those of a slice: -ENODEV with a fault where it names a GPU that is not there. config and gpus
 * stay the caller's. */
int devices_find(const struct config_slice *slice, const struct gpus *gpus,
		 struct devices *ret_devices, struct fault *fault);

/* Whether all slices of the configuration fit on their GPUs together, as far as memory goes: 0, or
 * -ENOSPC with a fault. Not asked where the configuration overcommits. */
int devices_fit(const struct config *config, const struct gpus *gpus, struct fault *fault);

void devices_id(const struct devices *devices, unsigned gpu, unsigned replica,
		char ret_id[DEVICES_ID_LEN]);
/* The device with that ID: its GPU's place in gpus->gpu, and its number. False: there is none. */
bool devices_parse(const struct devices *devices, const char *id, unsigned *ret_gpu,
		   unsigned *ret_replica);
