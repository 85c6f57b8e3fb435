/*
 * What NVML says against what the slices say: who is on a GPU without a slice, which slice holds
 * more than its ledger has, and whose limits were lifted above its policy. Each finding is told
 * once; by configuration the process is ended some time after.
 */
#pragma once

#include "config.h"
#include "events.h"
#include "overview.h"
#include "track.h"

struct procs;
struct audit_process; /* one that was found, and may be ended */

struct audit {
	unsigned count;
	struct audit_process *process;
};

/* After each look; findings about slices are noted in track, which is of overview. */
void audit_look(struct audit *audit, const struct config *config, const struct overview *overview,
		struct procs *procs, struct track *track, struct events *events);
void audit_close(struct audit *audit);
