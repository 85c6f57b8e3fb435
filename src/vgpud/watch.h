/*
 * vgpud's looks at the machine: once a second all slices and GPUs, what changed since the look
 * before, and the answer to /metrics that follows from it.
 */
#pragma once

#include "audit.h"
#include "config.h"
#include "events.h"
#include "overview.h"
#include "self.h"
#include "text.h"
#include "track.h"

struct watch {
	const struct config *config;
	struct overview_looker looker;
	struct overview overview; /* the last look */
	struct track track;       /* of it */
	struct self self;
	struct audit audit;
	struct events events;
	uint64_t nvml_next_ns; /* when to try NVML again, where it is missing */
};

int watch_open(struct watch *watch, const struct config *config, struct fault *fault);
void watch_close(struct watch *watch);
/* Another configuration from now on: 0, or a negative errno with a fault, and the one before stays.
 */
int watch_configure(struct watch *watch, const struct config *config, struct fault *fault);

void watch_look(struct watch *watch);

/* The metrics of the last look; arg is the struct watch. */
void watch_write(struct text *text, void *arg);
