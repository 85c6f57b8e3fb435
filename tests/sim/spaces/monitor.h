/*
 * A monitor as HAMi's is: a process on the host that maps a region for reading, knows its layout
 * and nothing else, and looks at all of its slots, all the time. It may be there before the region
 * is, and stays while containers come and go.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "vgpu_region.h"

/* What every look must find, counted where it does not. */
struct monitor_findings {
	uint64_t looks, unsteady; /* at a slot; and at one that changed meanwhile */
	uint64_t low_totals;      /* below context + module + data + offset */
	uint64_t wrong_hostpids;  /* neither 0 nor the right one, or 0 of who is known */
};

void monitor_start(const char *region_path);
/* Processes with that pid have that hostpid; all others have 0. Once. */
void monitor_knows(pid_t pid, pid_t hostpid);
struct monitor_findings monitor_end(void);

/* A single look, by the caller, at what counts by its status: device 0. Returns how many. */
struct monitor_slot {
	unsigned slot;
	int pid, hostpid;
	struct vgpu_hami_usage used;
};
unsigned monitor_look(struct monitor_slot ret_slots[VGPU_SLOTS_MAX]);
