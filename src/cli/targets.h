/*
 * Commands that act on each slice that they are given. They report each action as a line, or all of
 * them as one JSON document.
 */
#pragma once

#include <stdint.h>

#include "cli.h"
#include "slices.h"
#include "vgpu_region.h"

/* A GPU of a slice, with the slice's limits on it after the action. */
struct target_gpu {
	unsigned index;
	const char *uuid;
	uint64_t memory_limit_bytes; /* 0: none */
	uint64_t memory_used_bytes;
	unsigned cores_pct, cores_most_pct; /* as in a policy */
	uint64_t burst_ns;                  /* as in a policy */
};

/* The result of an action on a slice. */
struct target {
	const char *name;               /* the slice's, or the argument if there is no such slice */
	const struct slices_one *slice; /* NULL: no slice has that name, or several have */
	bool left_out;                  /* the action does not apply to this slice: no report */
	bool changed;                   /* false: nothing was done, or nothing had to be */
	unsigned processes;             /* how many were paused, resumed or ended */
	char said[512];                 /* the report for people, without a line feed */
	struct fault fault;             /* the reason of a failure; "": none */
	const char *gang;               /* vgpu set: the policy's word; NULL: no policy */
	unsigned gpu_count;             /* vgpu set: entries of gpu */
	struct target_gpu gpu[VGPU_DEVICES_MAX];
};

/* An action. run acts on one slice, and fills target->said, or target->fault if it fails. */
struct target_action {
	void (*run)(const struct target_action *action, struct target *target);
	bool all, force; /* options of vgpu rm */
};

/* Runs the action for each slice that the command line names, or for all. Prints the reports, and
 * returns the exit status. */
int targets_each(const struct cli_line *line, bool all, bool json,
		 const struct target_action *action);

/* The JSON document. Without json-c, target_document_open fails before any action, with a line on
 * stderr, and returns the exit status. */
struct target_document;
int target_document_open(struct target_document **ret_document);
void target_document_add(struct target_document *document, const struct target *target);
int target_document_print(struct target_document *document); /* and frees it */
