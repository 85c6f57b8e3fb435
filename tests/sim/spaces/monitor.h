/*
 * A monitor like HAMi's: a process on the host that maps a region for reading. It knows the
 * region's layout and nothing else, and looks at all of its slots, all the time. It may exist
 * before the region, and stays while containers come and go.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "vgpu_region.h"

/* Numbers of looks, and of those with a wrong figure. */
struct monitor_findings {
	uint64_t looks, unsteady; /* looks at a slot, and at one that changed meanwhile */
	uint64_t low_totals;      /* below context + module + data + offset */
	uint64_t wrong_hostpids;  /* neither 0 nor the right one, or 0 for a known process */
};

void monitor_start(const char *region_path);
/* From now on, processes with that pid must have that hostpid; all others have 0. Call it
 * once. */
void monitor_knows(pid_t pid, pid_t hostpid);
struct monitor_findings monitor_end(void);

/* A single look by the caller, on device 0, at the slots that count by their status. Returns
 * their number. */
struct monitor_slot {
	unsigned slot;
	int pid, hostpid;
	struct vgpu_hami_usage used;
};
unsigned monitor_look(struct monitor_slot ret_slots[VGPU_SLOTS_MAX]);
