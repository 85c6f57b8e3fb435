/*
 * Reads the values of --memory, --cores, --burst, --group and --gang.
 *
 * The value of --memory, --cores or --burst is a list. It has an amount for each GPU, in the order
 * of struct gpus, or one amount for all GPUs. Each function returns 0, or the exit status after a
 * line on stderr. That is CLI_USAGE if the value is wrong on every machine, and CLI_FAILED if it is
 * wrong for these GPUs. The ret_ arrays have an element for each of the GPUs. Their content is
 * undefined on failure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpus.h"
#include "policy.h"
#include "vgpu_region.h"

/* Check the form of a list without the machine's GPUs, so that a wrong command line is refused
 * before NVML is opened. *ret_limits: whether any amount of the list is not "none". */
int amounts_check_memory(const char *list, bool *ret_limits);
int amounts_check_cores(const char *list, bool *ret_limits);
int amounts_check_burst(const char *list);

/* Memory limits in bytes; 0: none. A limit is at least 2 MiB and, unless the slice
 * oversubscribes, at most the GPU's memory. "50%" is half of each GPU's memory, rounded down to
 * a multiple of 2 MiB. */
int amounts_memory(const char *list, const struct gpus *gpus, bool oversubscribe,
		   uint64_t ret_bytes[VGPU_DEVICES_MAX]);

/* The number of the group with that name or number, at most POLICY_GROUP_MAX. Errors:
 * CLI_USAGE. */
int amounts_group(const char *word, unsigned *ret_group);
/* The value of --gang: "yes", "no", "found", or a gang's name. Errors: CLI_USAGE. */
int amounts_gang(const char *word, struct policy_gang *ret_gang);

/* Compute quotas in percent. In an element for "none", both figures are 0. */
int amounts_cores(const char *list, const struct gpus *gpus,
		  struct policy_cores ret_cores[VGPU_DEVICES_MAX]);

/* Bursts in nanoseconds, as in a policy: 0 for "default", and POLICY_NO_BURST for a burst of 0.
 */
int amounts_burst(const char *list, const struct gpus *gpus, uint64_t ret_ns[VGPU_DEVICES_MAX]);
