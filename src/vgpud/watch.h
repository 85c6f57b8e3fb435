/*
 * vgpud's looks at the machine. Once a second, a look reads all slices and GPUs, reports what
 * changed since the last look, and makes the figures for /metrics.
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
	struct track track;       /* of the last look */
	struct self self;
	struct audit audit;
	struct events events;
	struct fault failure;  /* why the last look failed; "": it succeeded */
	uint64_t nvml_next_ns; /* CLOCK_MONOTONIC; for NVML's next opening */
};

/* Opens NVML and the events, and takes no look yet. config must live as long as watch. A missing
 * NVML is logged, and is no error. Returns 0, or a negative number with a fault. */
int watch_open(struct watch *watch, const struct config *config, struct fault *fault);
void watch_close(struct watch *watch);
/* Uses another configuration from now on. Returns 0; or a negative errno with a fault, and the
 * old configuration stays. */
int watch_configure(struct watch *watch, const struct config *config, struct fault *fault);

/* Takes a look and reports events. Where the look fails, as there is no memory, the last look's
 * figures stay, and the reason is logged once. */
void watch_look(struct watch *watch);

/* Adds the metrics of the last look; arg is the struct watch. */
void watch_write(struct text *text, void *arg);
