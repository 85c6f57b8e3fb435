/*
 * Commands that do something to each slice that they are given: what they did, a line each or as
 * one JSON document.
 */
#pragma once

#include <stdint.h>

#include "cli.h"
#include "slices.h"
#include "vgpu_region.h"

/* A GPU of a slice, with the limits that the slice has of it then. */
struct target_gpu {
	unsigned index;
	const char *uuid;
	uint64_t memory_limit_bytes, memory_used_bytes; /* the former: 0 for none */
	unsigned cores_pct, cores_most_pct;             /* as in a policy */
	uint64_t burst_ns;                              /* as a policy has it */
};

/* What was done to a slice. */
struct target {
	const char *name;               /* the slice's, or what was written where there is none */
	const struct slices_one *slice; /* NULL: there is no such slice, or several are meant */
	bool left_out;                  /* it is none of those that are meant after all */
	bool changed;                   /* false: it was so already, or nothing was done */
	unsigned processes;             /* how many were paused, resumed or ended */
	char said[512];                 /* the line for people, without its line feed */
	struct fault fault;             /* why it was not done; "" if it was */
	const char *gang;               /* of vgpu set: the policy's word; NULL: it has no policy */
	unsigned gpu_count;             /* likewise */
	struct target_gpu gpu[VGPU_DEVICES_MAX];
};

/* Does it to one slice, or leaves a fault in target->fault. target->said is for success. */
struct target_action {
	void (*run)(const struct target_action *action, struct target *target);
	bool all, force; /* rm's */
};

/* Calls it for each slice that the line names, or for all; prints, and returns what to exit with.
 */
int targets_each(const struct cli_line *line, bool all, bool json,
		 const struct target_action *action);

/* The document. Without json-c, target_document_open says so on stderr and returns what to exit
 * with, before anything is done. */
struct target_document;
int target_document_open(struct target_document **ret_document);
void target_document_add(struct target_document *document, const struct target *target);
int target_document_print(struct target_document *document); /* and frees it */
