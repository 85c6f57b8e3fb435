/*
 * Shared memory that only file descriptors keep. Memory of which descriptors are left
 * (descriptor.c) stays charged when no process has it open. The charge is KEPT then, in the offset
 * class, as no process's NVML figure has the memory. It stays with its slot until there is no
 * import and no descriptor (region_share_look). share.c explains the table.
 *
 * If the process is killed on any line. When the process of a slot with a KEPT charge dies, another
 * process clears the slot. That process is first charged itself, and then takes the entry over.
 * After a kill in between, the next process does both. An onlooker, and a process whose slot does
 * not count yet, leave such a slot as it is. Only classes of the own slot change, so own.move is
 * not used.
 */
#include "share_internal.h"

#define DOUBTFUL_MOST 64 /* keys that are looked up together */

/* -- descriptors ------------------------------------------------------------------------------ */

int region_share_descriptors_left(struct region *region, const struct vgpu_region_share *charge)
{
	const struct region_descriptors descriptors = {REGION_LOAD(charge->key),
						       REGION_LOAD(charge->count)};

	return region_is_descriptor_key(descriptors.key)
		       ? region_descriptors_left(region, &descriptors)
		       : 0;
}

void region_share_keep_locked(struct region *region, struct vgpu_region_share *charge)
{
	unsigned device = REGION_LOAD(charge->device) % VGPU_DEVICES_MAX;
	uint64_t bytes = REGION_LOAD(charge->bytes);

	region_charge_locked(region, device, REGION_OFFSET, bytes);
	region_refund_locked(region, device, REGION_DATA, bytes);
	REGION_PUBLISH(charge->state, VGPU_SHARE_KEPT);
	region_step(share_kept);
}

/* Whether a living slot, ours or another, has the memory open. Imports of dead slots are freed. */
static bool is_open(struct region *region, const struct vgpu_region_share *charge)
{
	return region_share_find_our_import(region, charge) ||
	       region_share_find_heir(region, charge);
}

bool region_share_must_keep(struct region *region, const struct vgpu_region_share *charge)
{
	int left;

	if (region_share_has_state(charge, VGPU_SHARE_KEPT) && is_open(region, charge))
		return true;
	left = region_share_descriptors_left(region, charge);
	return left > 0 || (left < 0 && (region->slot >= 0 || region_anybody_lives(region)));
}

void region_share_take_over_locked(struct region *region, struct vgpu_region_share *charge)
{
	unsigned slot = (unsigned)region->slot;

	region_charge_locked(region, REGION_LOAD(charge->device) % VGPU_DEVICES_MAX, REGION_OFFSET,
			     REGION_LOAD(charge->bytes));
	REGION_PUBLISH(charge->state, VGPU_SHARE_KEPT);
	REGION_PUBLISH(charge->claim, region_share_claim_of(region->file, slot));
	REGION_PUBLISH(charge->slot, (uint16_t)slot);
	region_step(share_kept);
}

static bool is_kept_by_us(struct region *region, const struct vgpu_region_share *share)
{
	return region_share_has_state(share, VGPU_SHARE_KEPT) && region_share_is_charge(share) &&
	       region_share_is_ours(region, share);
}

/* Frees our kept charge, after no descriptor with that key was found. Under the lock, this is
 * checked again. Returns whether the charge was freed. */
static bool let_go_of_kept(struct region *region, struct vgpu_region_share *charge, uint64_t key)
{
	bool gone;

	if (region_lock_slot(region) != 0)
		return false;
	/* Only a process that has the memory open can make another descriptor of it. */
	gone = is_kept_by_us(region, charge) && REGION_LOAD(charge->key) == key &&
	       !is_open(region, charge) && region_share_descriptors_left(region, charge) <= 0;
	if (gone) {
		region_share_free_locked(charge);
		region_refund_locked(region, REGION_LOAD(charge->device) % VGPU_DEVICES_MAX,
				     REGION_OFFSET, REGION_LOAD(charge->bytes));
	}
	region_unlock(region);
	return gone;
}

/* Whether a process died from whose slot descriptors may keep memory. Whether a slot's process
 * lives is a system call, which is made once for each slot. */
static bool any_dead_exporter(struct region *region)
{
	uint64_t living[VGPU_SLOTS_MAX / 64] = {0}; /* a bit for each slot */
	unsigned count = region_shares_in_use(region->file);

	for (unsigned i = 0; i < count; i++) {
		struct vgpu_region_share *share = &region->file->own.shares[i];
		unsigned slot = REGION_LOAD(share->slot) % VGPU_SLOTS_MAX;
		uint64_t bit = (uint64_t)1 << slot % 64;

		if (!region_is_descriptor_key(REGION_LOAD(share->key)) ||
		    !region_share_is_charge(share) || living[slot / 64] & bit)
			continue;
		if (!region_share_may_live(region, share))
			return true;
		living[slot / 64] |= bit;
	}
	return false;
}

/* Charges that our slot keeps, and of whose descriptors only /proc/locks says whether one is left.
 */
struct doubtful {
	uint64_t keys[DOUBTFUL_MOST];
	unsigned entries[DOUBTFUL_MOST];
	unsigned count;
};

static bool look_at_kept(struct region *region, unsigned i, struct doubtful *doubtful)
{
	struct vgpu_region_share *charge = &region->file->own.shares[i];
	uint64_t key = REGION_LOAD(charge->key);
	int left = region_share_descriptors_left(region, charge);

	if (left == 0)
		return let_go_of_kept(region, charge, key);
	if (left < 0 && doubtful->count < DOUBTFUL_MOST) {
		doubtful->keys[doubtful->count] = key;
		doubtful->entries[doubtful->count++] = i;
	}
	return false;
}

static bool look_at_doubtful(struct region *region, const struct doubtful *doubtful)
{
	bool found[DOUBTFUL_MOST], open[DOUBTFUL_MOST], gone = false;

	/* This is looked at before the descriptors are listed: memory that no process has open then
	 * cannot be exported again. */
	if (region_lock_slot(region) != 0)
		return false;
	for (unsigned i = 0; i < doubtful->count; i++)
		open[i] = is_open(region, &region->file->own.shares[doubtful->entries[i]]);
	region_unlock(region);
	if (region_descriptors_listed(doubtful->keys, doubtful->count, found) != 0)
		return false;
	for (unsigned i = 0; i < doubtful->count; i++)
		if (!found[i] && !open[i])
			gone |= let_go_of_kept(region,
					       &region->file->own.shares[doubtful->entries[i]],
					       doubtful->keys[i]);
	return gone;
}

bool region_share_look(struct region *region)
{
	bool ours = region->slot >= 0 && region_watch(region) == 0, gone = false;
	unsigned count = ours ? region_shares_in_use(region->file) : 0;
	struct doubtful doubtful = {.count = 0};

	if (count && any_dead_exporter(region))
		region_reap(region);
	for (unsigned i = 0; i < count; i++)
		if (is_kept_by_us(region, &region->file->own.shares[i]))
			gone |= look_at_kept(region, i, &doubtful);
	if (doubtful.count)
		gone |= look_at_doubtful(region, &doubtful);
	return gone;
}

bool region_share_any_kept(struct region *region)
{
	unsigned count = region_shares_in_use(region->file);

	for (unsigned i = 0; i < count; i++)
		if (region_share_is_charge(&region->file->own.shares[i]) &&
		    region_share_descriptors_left(region, &region->file->own.shares[i]) == 1)
			return true;
	return false;
}

bool region_share_needs_keeper(struct region *region, unsigned slot)
{
	unsigned count = region_shares_in_use(region->file);

	for (unsigned i = 0; i < count; i++) {
		struct vgpu_region_share *share = &region->file->own.shares[i];

		if (region_share_is_charge(share) && REGION_LOAD(share->slot) == slot &&
		    (region_share_has_state(share, VGPU_SHARE_KEPT) ||
		     !region_share_find_heir(region, share)) &&
		    region_share_must_keep(region, share))
			return true;
	}
	return false;
}
