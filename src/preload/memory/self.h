/* Finds this process in NVML's lists, where it is not listed under its own pid. */
#pragma once

#include <stdbool.h>

#include "cuda_abi.h"

/* NVML lists no process with this process's pid; or, if `listed`, one that is hardly this process.
 * The function finds the entry whose figure changes when the process takes memory of the device.
 * nvml_own_usage uses that entry from then on. False: no entry was found, which a line says, once.
 */
bool self_find(CUdevice device, bool listed);

void self_forked(void); /* in a forked child */
