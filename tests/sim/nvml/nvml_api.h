/* NVML's functions, as a linked program sees them, and functions that the tests here share. */
#pragma once

#include <string.h>
#include <sys/stat.h>

#include "cuda_api.h"
#include "nvml_abi.h"

#define NVML_HOOK(name, parameters, arguments) nvmlReturn_t name parameters;
#define NVML_CALL(name, parameters)            nvmlReturn_t name parameters;
#define NVML_SIM(name, parameters)             nvmlReturn_t name parameters;
#include "nvml.def"

/* Adds a GPU or MIG instance to the scene's policy, with 2 GiB. */
static inline void policy_add(const char *uuid)
{
	policy_write(uuid, "memory = 2G\n");
}

/* The machine's GPU `gpu` in the machine's numbering. It is found by its UUID, so the slice
 * must have it. */
static inline nvmlDevice_t device_of(unsigned gpu)
{
	nvmlDevice_t device = NULL;

	CHECK_OK(nvmlDeviceGetHandleByUUID(gpu_uuid(gpu), &device));
	return device;
}
