/*
 * The audit compares NVML's figures with the slices'. It finds processes that are on a GPU
 * without a slice, slices that hold more than their ledger has, and slices whose limits were
 * lifted above their policy. An event reports each finding once. If the configuration says so,
 * the process is ended some time later.
 */
#pragma once

#include "config.h"
#include "events.h"
#include "overview.h"
#include "track.h"

struct procs;
struct audit_process; /* a process with a finding */

struct audit {
	unsigned count;
	struct audit_process *process;
};

/* Call it after each look. track belongs to overview, and keeps the findings about slices. */
void audit_look(struct audit *audit, const struct config *config, const struct overview *overview,
		struct procs *procs, struct track *track, struct events *events);
void audit_close(struct audit *audit);
