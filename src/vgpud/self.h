/* What vgpud says of itself. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "text.h"

struct self {
	double started_s;      /* unix time */
	uint64_t looks;        /* at the machine */
	uint64_t failed_looks; /* those that found no memory */
	uint64_t look_ns;      /* how long the last one took */
	bool has_nvml;         /* NVML answered at the last look */
};

/* Its own metrics, and those of the process, as Prometheus' client libraries name them. */
void self_write(struct text *text, const struct self *self);
