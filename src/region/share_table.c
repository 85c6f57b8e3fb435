/*
 * The table of shared memory. This file finds, fills in and frees entries, and moves a charge from
 * one slot to another. share.c explains the two kinds of entries, and what always holds.
 *
 * An entry names a slot and the claim of it. Entries of a dead process are cleared before another
 * process fills in the slot. Between the two, the next owner may have counted its claim already;
 * the claim in the entry tells the dead process from that owner (region_share_may_live).
 *
 * If the process is killed on any line. An entry is filled in while its state is free, and
 * published by its state. A move changes the figures of two slots. So own.move has the figures to
 * be reached, not differences, before the move begins. The process that takes the lock over does
 * the whole move again before anything else (region_share_repair_locked). No process had the lock
 * in between, so the figures still apply.
 */
#include <errno.h>

#include "share_internal.h"

unsigned region_shares_in_use(const struct vgpu_region_file *file)
{
	uint32_t count = REGION_LOAD(file->own.share_count);

	return count > VGPU_SHARES_MAX ? VGPU_SHARES_MAX : count;
}

/* -- entries ---------------------------------------------------------------------------------- */

bool region_share_is_charge(const struct vgpu_region_share *share)
{
	return (region_share_has_state(share, VGPU_SHARE_EXPORT) ||
		region_share_has_state(share, VGPU_SHARE_MOVED) ||
		region_share_has_state(share, VGPU_SHARE_KEPT)) &&
	       REGION_LOAD(share->slot) < VGPU_SLOTS_MAX &&
	       REGION_LOAD(share->device) < VGPU_DEVICES_MAX;
}

struct vgpu_region_share *region_share_charge_of(struct vgpu_region_file *file,
						 const struct vgpu_region_share *import)
{
	uint16_t of = REGION_LOAD(import->of);
	struct vgpu_region_share *charge;

	if (!region_share_has_state(import, VGPU_SHARE_IMPORT) || of >= VGPU_SHARES_MAX)
		return NULL;
	charge = &file->own.shares[of];
	if (!region_share_is_charge(charge) || REGION_LOAD(charge->key) != REGION_LOAD(import->key))
		return NULL;
	return charge;
}

bool region_share_may_live(struct region *region, const struct vgpu_region_share *share)
{
	unsigned slot = REGION_LOAD(share->slot);

	return slot < VGPU_SLOTS_MAX && !region_slot_is_free(region->file, slot) &&
	       REGION_LOAD(share->claim) == region_share_claim_of(region->file, slot) &&
	       region_slot_alive(region, slot);
}

bool region_share_is_ours(const struct region *region, const struct vgpu_region_share *share)
{
	unsigned slot = (unsigned)region->slot;

	return REGION_LOAD(share->slot) == slot &&
	       REGION_LOAD(share->claim) == region_share_claim_of(region->file, slot);
}

int region_share_add_locked(struct region *region, const struct vgpu_region_share *entry)
{
	struct vgpu_region_own *own = &region->file->own;
	struct vgpu_region_share *at;
	uint32_t i = 0;

	while (i < VGPU_SHARES_MAX && !region_share_has_state(&own->shares[i], VGPU_SHARE_FREE))
		i++;
	if (i == VGPU_SHARES_MAX)
		return -ENOSPC;
	if (region_shares_in_use(region->file) <= i) {
		REGION_PUBLISH(own->share_count, i + 1);
		region_step(share_counted);
	}
	at = &own->shares[i];
	REGION_STORE(at->key, entry->key);
	REGION_STORE(at->bytes, entry->bytes);
	REGION_STORE(at->claim, region_share_claim_of(region->file, (unsigned)region->slot));
	REGION_STORE(at->count, entry->count);
	REGION_STORE(at->slot, (uint16_t)region->slot);
	REGION_STORE(at->of, entry->of);
	REGION_STORE(at->device, entry->device);
	region_step(share_filled);
	REGION_PUBLISH(at->state, entry->state); /* last: a kill must not leave it used and empty */
	region_step(share_published);
	return 0;
}

void region_share_free_locked(struct vgpu_region_share *share)
{
	REGION_PUBLISH(share->state, VGPU_SHARE_FREE);
	region_step(share_freed);
}

struct vgpu_region_share *region_share_find_ours(struct region *region, uint64_t key,
						 enum vgpu_share_state state)
{
	unsigned count = region_shares_in_use(region->file);

	for (unsigned i = 0; i < count; i++) {
		struct vgpu_region_share *share = &region->file->own.shares[i];

		if (region_share_has_state(share, state) && REGION_LOAD(share->key) == key &&
		    region_share_is_ours(region, share))
			return share;
	}
	return NULL;
}

struct vgpu_region_share *region_share_find_our_import(struct region *region,
						       const struct vgpu_region_share *charge)
{
	unsigned count = region_shares_in_use(region->file);

	for (unsigned i = 0; i < count; i++) {
		struct vgpu_region_share *share = &region->file->own.shares[i];

		if (region_share_charge_of(region->file, share) == charge &&
		    region_share_is_ours(region, share))
			return share;
	}
	return NULL;
}

/* A charge of a living slot comes before one of a dead slot, which has not moved yet. An exported
 * charge comes before a moved one, which may be of memory that had the key earlier. */
struct vgpu_region_share *region_share_find_charge(struct region *region, uint64_t key)
{
	unsigned count = region_shares_in_use(region->file), best_rank = 0;
	struct vgpu_region_share *best = NULL;

	for (unsigned i = 0; i < count; i++) {
		struct vgpu_region_share *share = &region->file->own.shares[i];
		unsigned rank;

		if (!region_share_is_charge(share) || REGION_LOAD(share->key) != key)
			continue;
		rank = 1 + (region_share_has_state(share, VGPU_SHARE_EXPORT) ? 1u : 0u) +
		       (region_share_may_live(region, share) ? 2u : 0u);
		if (rank > best_rank) {
			best = share;
			best_rank = rank;
		}
	}
	return best;
}

/* -- a charge moves --------------------------------------------------------------------------- */

/* The bytes that the slot is charged as data. */
static uint64_t data_of(const struct vgpu_region_file *file, unsigned slot, unsigned device)
{
	const struct vgpu_hami_usage *usage = &file->hami.slots[slot].used[device];

	return region_slot_is_exiting(file, slot) ? REGION_LOAD(usage->exiting_data)
						  : REGION_LOAD(usage->data);
}

/* Sets a slot's data class to `bytes`, and its total accordingly. It can be repeated. The total is
 * never below the sum of the classes; the stores are releases, so a kill leaves them in this order.
 */
static void put_data(struct vgpu_region_file *file, unsigned slot, unsigned device, uint64_t bytes)
{
	struct vgpu_hami_usage *usage = &file->hami.slots[slot].used[device];
	uint64_t was = REGION_LOAD(usage->data);
	uint64_t total = region_sum_classes(usage) - was + bytes;

	if (region_slot_is_exiting(file, slot)) {
		REGION_PUBLISH(usage->exiting_data, bytes);
		return;
	}
	if (bytes >= was) {
		REGION_PUBLISH(usage->total, total);
		region_step(move_raised_total);
		REGION_PUBLISH(usage->data, bytes);
		region_step(move_raised);
	} else {
		REGION_PUBLISH(usage->data, bytes);
		region_step(move_lowered);
		REGION_PUBLISH(usage->total, total);
		region_step(move_lowered_total);
	}
}

/* Does the move that own.move describes, also one that was partly done. The device's total stays.
 */
static void finish_move_locked(struct vgpu_region_file *file)
{
	struct vgpu_region_move *move = &file->own.move;
	unsigned index = REGION_LOAD(move->share), device = REGION_LOAD(move->device);
	unsigned from = REGION_LOAD(move->from), to = REGION_LOAD(move->to);
	struct vgpu_region_share *share;

	/* The values that were read are checked and used: the tenant may write the file at any
	 * time. */
	if (index >= VGPU_SHARES_MAX || from >= VGPU_SLOTS_MAX || to >= VGPU_SLOTS_MAX ||
	    device >= VGPU_DEVICES_MAX) {
		REGION_PUBLISH(move->active, 0); /* no vgpu wrote that */
		return;
	}
	share = &file->own.shares[index];
	put_data(file, to, device, REGION_LOAD(move->to_data));
	put_data(file, from, device, REGION_LOAD(move->from_data));
	REGION_PUBLISH(share->bytes, REGION_LOAD(move->bytes));
	REGION_PUBLISH(share->claim, REGION_LOAD(move->to_claim));
	REGION_PUBLISH(share->slot, (uint16_t)to);
	region_step(move_named);
	REGION_PUBLISH(share->state, VGPU_SHARE_MOVED);
	region_step(move_marked);
	REGION_PUBLISH(move->active, 0);
	region_step(move_done);
}

/* At most the bytes of the data class move: a refund without a withdrawal is not undone. */
void region_share_move_locked(struct region *region, struct vgpu_region_share *charge,
			      const struct vgpu_region_share *import)
{
	struct vgpu_region_file *file = region->file;
	struct vgpu_region_move *move = &file->own.move;
	uint16_t from = REGION_LOAD(charge->slot), to = REGION_LOAD(import->slot);
	uint8_t device = REGION_LOAD(charge->device);
	uint64_t from_data, to_data, bytes = REGION_LOAD(charge->bytes);

	if (from >= VGPU_SLOTS_MAX || to >= VGPU_SLOTS_MAX || device >= VGPU_DEVICES_MAX)
		return; /* not what its caller saw there: the tenant wrote it meanwhile */
	from_data = data_of(file, from, device);
	to_data = data_of(file, to, device);
	if (bytes > from_data)
		bytes = from_data;
	REGION_STORE(move->bytes, bytes);
	REGION_STORE(move->from_data, from_data - bytes);
	REGION_STORE(move->to_data, to_data + bytes);
	REGION_STORE(move->to_claim, REGION_LOAD(import->claim));
	REGION_STORE(move->share, (uint16_t)(charge - file->own.shares));
	REGION_STORE(move->from, from);
	REGION_STORE(move->to, to);
	REGION_STORE(move->device, device);
	region_step(move_written);
	REGION_PUBLISH(move->active, 1);
	region_step(move_begun);
	finish_move_locked(file);
}

void region_share_repair_locked(struct vgpu_region_file *file)
{
	if (REGION_LOAD(file->own.move.active))
		finish_move_locked(file);
}

struct vgpu_region_share *region_share_find_heir(struct region *region,
						 const struct vgpu_region_share *charge)
{
	unsigned count = region_shares_in_use(region->file);

	for (unsigned i = 0; i < count; i++) {
		struct vgpu_region_share *share = &region->file->own.shares[i];

		if (region_share_charge_of(region->file, share) != charge ||
		    region_share_is_ours(region, share))
			continue;
		if (region_share_may_live(region, share))
			return share;
		region_share_free_locked(share);
	}
	return NULL;
}
