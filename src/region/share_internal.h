/*
 * Declarations that share.c, share_table.c and share_kept.c share, and that no other file includes.
 * "Our" slot is the one that the calling process claimed. A function whose name ends in _locked
 * needs the lock.
 */
#pragma once

#include "region_internal.h"

/* -- share_table.c ---------------------------------------------------------------------------- */

static inline bool region_share_has_state(const struct vgpu_region_share *share,
					  enum vgpu_share_state state)
{
	return REGION_LOAD(share->state) == state;
}

/* How often the slot was claimed: an entry has that number of its slot as the entry was made. */
static inline uint32_t region_share_claim_of(const struct vgpu_region_file *file, unsigned slot)
{
	return (uint32_t)REGION_LOAD(file->own.slots[slot].claims);
}

/* Whether the process that the entry names may live. */
bool region_share_may_live(struct region *region, const struct vgpu_region_share *share);
/* Whether our slot made the entry, or took it over. */
bool region_share_is_ours(const struct region *region, const struct vgpu_region_share *share);

/* Puts an entry of our slot into the table: 0, or -ENOSPC. */
int region_share_add_locked(struct region *region, const struct vgpu_region_share *entry);
void region_share_free_locked(struct vgpu_region_share *share);

/* Our slot's entry of that key and state, or NULL. */
struct vgpu_region_share *region_share_find_ours(struct region *region, uint64_t key,
						 enum vgpu_share_state state);
/* Our slot's import of that charge, or NULL. */
struct vgpu_region_share *region_share_find_our_import(struct region *region,
						       const struct vgpu_region_share *charge);
/* The charge that an import of the key belongs to, or NULL. */
struct vgpu_region_share *region_share_find_charge(struct region *region, uint64_t key);

/* An import of the charge by a living slot other than ours, or NULL. Imports of dead slots that
 * come first are freed: after NULL, only our slot may have imports of the charge. */
struct vgpu_region_share *region_share_find_heir(struct region *region,
						 const struct vgpu_region_share *charge);
/* Moves the charge to the slot that has that import of it. */
void region_share_move_locked(struct region *region, struct vgpu_region_share *charge,
			      const struct vgpu_region_share *import);

/* -- share_kept.c ----------------------------------------------------------------------------- */

/* Whether a descriptor of the charge's memory is left: 1, 0, or negative if that cannot be found
 * out. */
int region_share_descriptors_left(struct region *region, const struct vgpu_region_share *charge);
/* Makes our slot's charge a KEPT one: its bytes go from the data class to the offset class. */
void region_share_keep_locked(struct region *region, struct vgpu_region_share *charge);
/* Whether the charge must stay although its slot is over and the charge has moved to no import. An
 * onlooker that cannot tell leaves that to processes that have slots, if there are any. */
bool region_share_must_keep(struct region *region, const struct vgpu_region_share *charge);
/* Our slot, which counts, takes over a charge of a dead slot that descriptors keep. */
void region_share_take_over_locked(struct region *region, struct vgpu_region_share *charge);
