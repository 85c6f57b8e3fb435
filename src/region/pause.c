/*
 * Suspending a whole slice: the status of each slot, which is HAMi's word for it, and own.paused
 * for those who come later. No lock is taken: a slice must be paused also while one of its
 * processes is stopped with the lock.
 *
 * Whoever comes stores its status and then looks at own.paused; whoever pauses stores own.paused
 * and then looks at each status. In whatever order these meet, one of them sees the other's store:
 * each has a fence between the two, without which aarch64 may look before its store is to be seen.
 * After a change to what it has seen, who comes looks again, as the slice may have been resumed in
 * between.
 */
#include "region_internal.h"

/* A slot that is free, or that a monitor has done this with already, stays as it is. */
static void set_status(struct vgpu_hami_slot *slot, bool suspended)
{
	int32_t before = suspended ? VGPU_SLOT_RUNNING : VGPU_SLOT_SUSPENDED;

	__atomic_compare_exchange_n(&slot->status, &before,
				    suspended ? VGPU_SLOT_SUSPENDED : VGPU_SLOT_RUNNING, false,
				    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static bool is_paused(const struct vgpu_region_file *file)
{
	return __atomic_load_n(&file->own.paused, __ATOMIC_SEQ_CST) != 0;
}

void region_pause_newcomer(struct vgpu_region_file *file, unsigned slot)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with region_pause's */
	if (!is_paused(file))
		return;
	set_status(&file->hami.slots[slot], true);
	if (!is_paused(file))
		set_status(&file->hami.slots[slot], false);
}

unsigned region_pause(struct region *region, bool paused)
{
	struct vgpu_region_file *file = region->file;
	unsigned count = 0;

	__atomic_store_n(&file->own.paused, paused, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with region_pause_newcomer's */
	for (int slot = -1; (slot = region_next_slot(file, slot)) >= 0;) {
		set_status(&file->hami.slots[slot], paused);
		count += region_slot_alive(region, (unsigned)slot);
	}
	return count;
}
