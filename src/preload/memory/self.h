/* This process in NVML's lists, where it is not under its own pid. */
#pragma once

#include <stdbool.h>

#include "cuda_abi.h"

/* NVML has nothing under the process's pid: finds the process by what changes when it takes memory
 * of the device, and has nvml_own_usage go by that. False: not found, which a line says, once. */
bool self_find(CUdevice device);

void self_forget(void); /* in a forked child */
