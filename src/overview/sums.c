/*
 * Sums of figures over all slices of a GPU.
 *
 * Tenants write the figures into their regions, and a tenant may write any value. A sum can be
 * too large for that reason. A wrong sum is shown to users, but limits no slice: src/turn/ has
 * bounds of its own for these figures.
 */
#include <string.h>

#include "clock.h"
#include "overview.h"

/*
 * A slice is idle if its last launch was more than so many seconds ago. With half of it, a
 * slice that waits for others' turns or runs a long kernel may count as idle. With twice as
 * much, an idle slice's memory counts for longer, although the driver has moved that memory to
 * the host.
 */
#define RECENT_S 30

/* Whether programs of the slice use the GPU, or may start to use it at any time. */
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

/* Whether the slice has launched recently. A time of launch in the far future is ignored: the
 * clock was set back after that launch. */
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
