/* Metrics of vgpud itself. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "text.h"

struct self {
	double started_s;      /* unix time, seconds */
	uint64_t looks;        /* at the machine, successful ones */
	uint64_t failed_looks; /* looks that failed, as there was no memory */
	uint64_t look_ns;      /* how long the last successful look took */
	bool has_nvml;         /* NVML answered at the last look */
};

/* Adds vgpud's own metrics, and those of its process under the names that Prometheus' client
 * libraries use. */
void self_write(struct text *text, const struct self *self);
