/*
 * The region is opened read-only at the first query, and stays open. If there is no region yet, no
 * memory of the slice is in use, and the next query tries again. A forked child opens the region
 * for itself: with its parent's descriptor, the region's locks would take both for one process.
 */
#include "view.h"

#include "lock.h"
#include "nvml.h"
#include "policy_reload.h"
#include "state.h"

static struct lock opening = LOCK_INIT;
static struct region view = REGION_CLOSED; /* written under `opening`, once */

static struct region *open_view(void)
{
	bool open;

	lock_acquire(&opening);
	open = view.file || region_view(state_slice()->region_path, &view, NULL) == 0;
	lock_release(&opening);
	return open ? &view : NULL;
}

void view_forked(void)
{
	lock_init(&opening);
	region_forget(&view);
}

bool view_memory(const char *uuid, uint64_t *ret_limit, uint64_t *ret_used)
{
	struct region *region;
	struct slice_limits limits = {.policy = NULL};
	uint64_t first, now;
	int index;

	if (state_get() != STATE_ENFORCING)
		return false;
	policy_reload_look();
	slice_limits(state_slice(), uuid, slice_needs_order(state_slice()) ? nvml_index(uuid) : -1,
		     &limits);
	region = open_view();
	index = region ? region_find_device(region, uuid) : -1;
	*ret_used = 0;
	if (index < 0) {
		*ret_limit = slice_memory(&limits, 0, 0);
	} else {
		region_reap(region); /* if the region is writable; otherwise dead processes still
					show */
		now = region_limit(region, (unsigned)index, &first);
		*ret_limit = slice_memory(&limits, first, now);
		*ret_used = region_used(region, (unsigned)index);
	}
	return *ret_limit != 0;
}

unsigned view_processes(const char *uuid, struct region_process ret_processes[VGPU_SLOTS_MAX])
{
	struct region *region = state_get() == STATE_ENFORCING ? open_view() : NULL;

	if (!region)
		return 0;
	return region_processes(region, uuid ? region_find_device(region, uuid) : -1,
				ret_processes);
}
