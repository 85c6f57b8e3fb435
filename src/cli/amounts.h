/*
 * The values of --memory, --cores, --burst, --group and --gang. Those of the former three: an
 * amount for each GPU, in the order of gpus, or one for all. An amount of 0 is "none", no limit,
 * and of --burst the default. Each function returns 0, or what to exit with after a line on stderr:
 * CLI_USAGE where the value is wrong whatever the GPUs are, else CLI_FAILED.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpus.h"
#include "policy.h"
#include "vgpu_region.h"

/* The value's form alone, for a look at the command line before one at the machine. ret_limits:
 * whether any amount in it is a limit. */
int amounts_check_memory(const char *list, bool *ret_limits);
int amounts_check_cores(const char *list, bool *ret_limits);
int amounts_check_burst(const char *list);

/* Bytes, at most what each GPU has, unless the slice oversubscribes. "50%" is of each GPU's memory,
 * rounded down to a multiple of 2 MiB. */
int amounts_memory(const char *list, const struct gpus *gpus, bool oversubscribe,
		   uint64_t ret_bytes[VGPU_DEVICES_MAX]);

/* A group's name or number. */
int amounts_group(const char *word, unsigned *ret_group);
/* yes, no, found, or a gang's name. */
int amounts_gang(const char *word, struct policy_gang *ret_gang);

/* A pct of 0 is no limit. */
int amounts_cores(const char *list, const struct gpus *gpus,
		  struct policy_cores ret_cores[VGPU_DEVICES_MAX]);

/* ns as a policy has them: POLICY_NO_BURST for a written 0. */
int amounts_burst(const char *list, const struct gpus *gpus, uint64_t ret_ns[VGPU_DEVICES_MAX]);
