/*
 * What the slices of a GPU have together.
 *
 * Tenants write the figures into their regions. One that writes too much has the sums too large,
 * which others see and which costs them nothing here: src/turn/ has bounds of its own for what it
 * believes.
 */
#include <string.h>

#include "clock.h"
#include "overview.h"

/* s since a slice's last launch after which it is idle. Half: a slice that waits for turns of
 * others, or runs a long kernel, may be left out. Twice: memory of an idle slice, which is moved
 * once and stays on the host, counts for longer. */
#define RECENT_S 30

/* Whether programs of the slice use the GPU, or may begin to at any time. */
static bool can_begin(const struct overview_slice *slice)
{
	return slice->state != OVERVIEW_LEFTOVER && slice->state != OVERVIEW_UNREADABLE;
}

struct overview_assured overview_assured(const struct overview *overview, const char *uuid)
{
	struct overview_assured assured = {0, 0, 0};

	for (unsigned i = 0; i < overview->count; i++) {
		const struct overview_slice *slice = &overview->slice[i];
		const struct overview_device *device = overview_find_device(slice, uuid);

		if (!device || !device->seen.cores_pct || !can_begin(slice))
			continue;
		assured.count++;
		assured.sum_pct += device->seen.cores_pct;
		if (device->seen.cores_pct > assured.most_pct)
			assured.most_pct = device->seen.cores_pct;
	}
	return assured;
}

/* A launch in the future was before the clock was set back. */
static bool is_at_work(const struct overview_slice *slice)
{
	int64_t now_s = (int64_t)(clock_wall_ns() / NS_PER_S);

	return slice->running > 0 && slice->launched_s >= now_s - RECENT_S &&
	       slice->launched_s <= now_s + RECENT_S;
}

uint64_t overview_held_bytes(const struct overview *overview, const char *uuid)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < overview->count; i++) {
		const struct overview_slice *slice = &overview->slice[i];
		const struct overview_device *device = overview_find_device(slice, uuid);

		if (device && is_at_work(slice) &&
		    __builtin_add_overflow(sum, device->seen.used_bytes, &sum))
			return UINT64_MAX;
	}
	return sum;
}
