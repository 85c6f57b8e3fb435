/* What --memory and --cores say: an amount for each GPU, in the order of gpus, or one for all. 0,
 * or what to exit with after a line on stderr. An amount of 0 is "none", no limit. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpus.h"
#include "vgpu_region.h"

/* Bytes, at most what each GPU has, unless the slice oversubscribes. */
int amounts_memory(const char *list, const struct gpus *gpus, bool oversubscribe,
		   uint64_t ret_bytes[VGPU_DEVICES_MAX]);

/* Percent, 1 to 100. */
int amounts_cores(const char *list, const struct gpus *gpus, uint64_t ret_pct[VGPU_DEVICES_MAX]);
