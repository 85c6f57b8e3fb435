/*
 * Managed memory that moves, at the speed of VGPU_SIM_PAGE_MB_S.
 *
 * This is a model of whole processes. Work that takes time touches all managed memory that its
 * process has on the GPU. The part that other processes have pushed out comes back first. That
 * takes bytes / speed of the GPU's time, as if it were part of the work. To make room, memory of
 * the processes whose last work is the longest ago is pushed out. The room is the memory that other
 * kinds of memory leave.
 *
 *     wanted    managed + away                    as allocated
 *     resident  the part on the GPU at present    brought to the lower of wanted and room
 *
 * If the managed memory of one process is larger than the room, it is brought once, and later work
 * does not move it again. Residency changes when work is queued, in the order of queueing.
 *
 * NVML's figures do not depend on residency: memory that was on the GPU when it was allocated
 * counts.
 */
#include "machine_file.h"

static uint64_t wanted_bytes(const struct share *share)
{
	return atomic_load(&share->managed_bytes) + atomic_load(&share->away_bytes);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The memory of the GPU that other kinds of memory leave. */
static uint64_t room_locked(unsigned gpu)
{
	uint64_t used = machine_used_locked(gpu), total = machine->total_bytes[gpu];

	for (unsigned i = 0; i < machine_slots_seen(); i++)
		if (atomic_load(&machine->slots[i].pid))
			used -= atomic_load(&machine->slots[i].shares[gpu].managed_bytes);
	return used < total ? total - used : 0;
}

/* Of the other processes with pages on the GPU, the one whose last work is the longest ago. */
static struct share *oldest_locked(unsigned gpu, uint64_t *ret_resident_bytes)
{
	struct share *oldest = NULL;

	*ret_resident_bytes = 0;
	for (unsigned i = 0; i < machine_slots_seen(); i++) {
		struct slot *slot = &machine->slots[i];
		struct share *share = &slot->shares[gpu];

		if (!atomic_load(&slot->pid) || !atomic_load(&share->resident_bytes))
			continue;
		*ret_resident_bytes += atomic_load(&share->resident_bytes);
		if (slot != machine_own &&
		    (!oldest ||
		     atomic_load(&share->queued_until_ns) < atomic_load(&oldest->queued_until_ns)))
			oldest = share;
	}
	return oldest;
}

static void push_out_locked(unsigned gpu, uint64_t room_bytes)
{
	uint64_t resident, less;
	struct share *share;

	while ((share = oldest_locked(gpu, &resident)) && resident > room_bytes) {
		less = least(atomic_load(&share->resident_bytes), resident - room_bytes);
		atomic_fetch_sub(&share->resident_bytes, less);
	}
}

uint64_t machine_pages_bring(unsigned gpu)
{
	struct share *own = &machine_own->shares[gpu];
	uint64_t mb_s = config_get()->page_mb_s, room, wanted, resident, moved;

	if (!mb_s || !wanted_bytes(own))
		return 0;
	machine_lock();
	room = room_locked(gpu);
	wanted = least(wanted_bytes(own), room);
	resident = atomic_load(&own->resident_bytes);
	moved = wanted > resident ? wanted - resident : 0;
	atomic_store(&own->resident_bytes, wanted);
	push_out_locked(gpu, room);
	machine_unlock();
	return moved * 1000 / mb_s;
}
