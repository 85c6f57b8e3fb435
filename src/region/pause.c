/*
 * Pausing a whole slice. own.paused is the slice's state: nothing but region_pause and the making
 * of a new region file changes it. The status of each slot is HAMi's word for its process: a launch
 * looks at that word alone, so the pause costs a launch nothing. No lock is taken: a slice must be
 * paused also while one of its processes is stopped with the lock.
 *
 * A process that claims a slot stores its status and then loads own.paused. region_pause stores
 * own.paused and then loads each status. A full fence stands between the store and the load on both
 * sides, so at least one side sees the other's store. Without the fences aarch64 could reorder
 * them. Both sides load own.paused again after each change of a status, and begin again when it has
 * another value. So a pause and a resume that overlap leave statuses that agree with own.paused.
 */
#include "region_internal.h"

/* Whether the status was changed: a free slot, and one that has the status already, stay. */
static bool set_status(struct vgpu_hami_slot *slot, bool suspended)
{
	int32_t before = suspended ? VGPU_SLOT_RUNNING : VGPU_SLOT_SUSPENDED;

	return __atomic_compare_exchange_n(&slot->status, &before,
					   suspended ? VGPU_SLOT_SUSPENDED : VGPU_SLOT_RUNNING,
					   false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static bool is_paused(const struct vgpu_region_file *file)
{
	return __atomic_load_n(&file->own.paused, __ATOMIC_SEQ_CST) != 0;
}

void region_pause_newcomer(struct vgpu_region_file *file, unsigned slot)
{
	bool suspended = false, paused;

	for (;;) {
		__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with region_pause's */
		paused = is_paused(file);
		if (paused == suspended)
			return;
		set_status(&file->hami.slots[slot], paused);
		suspended = paused;
	}
}

/* Returns how many living processes it suspended or resumed. */
static unsigned set_all(struct region *region, bool suspended)
{
	struct vgpu_hami_slot *slots = region->file->hami.slots;
	unsigned count = 0;

	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with region_pause_newcomer's */
	for (int slot = -1; (slot = region_next_slot(region->file, slot)) >= 0;)
		if (set_status(&slots[slot], suspended))
			count += region_slot_alive(region, (unsigned)slot);
	return count;
}

bool region_pause(struct region *region, bool paused, unsigned *ret_processes)
{
	struct vgpu_region_file *file = region->file;
	bool was_paused = __atomic_exchange_n(&file->own.paused, paused, __ATOMIC_SEQ_CST) != 0;
	bool suspended = paused, now;

	*ret_processes = set_all(region, suspended);
	while ((now = is_paused(file)) != suspended) {
		set_all(region, now);
		suspended = now;
	}
	return was_paused != paused;
}

bool region_is_paused(const struct region *region)
{
	return is_paused(region->file);
}
