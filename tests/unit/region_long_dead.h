/* For tests of dead processes of other PID namespaces. Such a process counts as dying for a
 * while after it was first seen dead. assume_long_dead() makes the region believe that it was
 * seen dead an hour ago. */
#pragma once

#include "clock.h"
#include "region.h"

static inline void assume_long_dead(struct region *region)
{
	uint32_t now_ms = (uint32_t)(clock_coarse_ns() / NS_PER_MS);

	for (unsigned slot = 0; slot < VGPU_SLOTS_MAX; slot++)
		region->deaths[slot] = (struct region_death){
			.claim = (uint32_t)__atomic_load_n(&region->file->own.slots[slot].claims,
							   __ATOMIC_RELAXED),
			.seen_ms = now_ms - 3600 * 1000,
		};
}
