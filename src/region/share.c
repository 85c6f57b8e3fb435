/*
 * Memory that several processes of the slice have open (CUDA IPC, exported handles). It is charged
 * once, as long as any of them has it open.
 *
 *     share.c         the calls of a process: export, withdraw, import, and the end of an import;
 *                     the end of a slot; by how much a reconciliation may be wrong
 *     share_table.c   entries of the table, and the move of a charge from one slot to another
 *     share_kept.c    charges for memory that only file descriptors keep
 *
 * How it works. own.shares is a table with two kinds of entries. A charge (EXPORT, MOVED, KEPT)
 * says that some bytes of a slot are memory that processes can open under a key. An import says
 * that a slot has the memory open, how often, and which entry is the charge. When the slot with the
 * charge gives the memory up or dies, and another living slot imports the memory, the charge moves
 * there. The bytes go from one slot's data class to the other's, and the entry names the other
 * slot. A slot has a MOVED charge because of its import. With its last import of the memory, the
 * charge moves on or is refunded.
 *
 * What always holds, whenever the lock is free. An entry in use names a slot that is not free. An
 * import names a charge with the same key. A slot has at most one import of a charge, so a charge
 * without imports can be freed alone. No slot exports a key twice. The bytes of a charge that moved
 * to a slot are in that slot's data class. Two slots may export the same key, because hashes may
 * coincide. Each has its charge and its imports, and an import belongs to one of the two.
 *
 * The lock protects all of it. Charges and refunds of other memory never look at the table. A
 * withdrawal, or the end of an import, that cannot get the lock in time is put into late_shares.
 * The next thread of ours that gets the lock makes it first.
 *
 * If the process is killed on any line. Changes that a process had begun to its own entries end
 * when its slot is cleared. That can be repeated, because its entries are freed before its status.
 * share_table.c and share_kept.c say what happens to an entry that is being filled in, and to a
 * charge that moves.
 *
 * What it is not: a check of keys. The keys say whether memory is the same.
 */
#include <errno.h>

#include "share_internal.h"

/* -- calls of a process
 * ----------------------------------------------------------------------------- */

int region_share_export(struct region *region, unsigned device, uint64_t key, uint64_t bytes)
{
	const struct region_descriptors none = {key, 0};

	return region_share_export_descriptors(region, device, &none, bytes);
}

int region_share_export_descriptors(struct region *region, unsigned device,
				    const struct region_descriptors *descriptors, uint64_t bytes)
{
	uint64_t key = descriptors->key;
	struct vgpu_region_share entry = {.key = key,
					  .bytes = bytes,
					  .count = descriptors->file,
					  .state = VGPU_SHARE_EXPORT,
					  .device = (uint8_t)device};
	struct vgpu_region_share *ours;
	int error;

	if (region->slot < 0)
		return -EBADF;
	error = region_lock_slot(region);
	if (error)
		return error;
	if (key == 0 || device >= region_devices_in_use(region->file))
		error = -EINVAL;
	else if (!(ours = region_share_find_ours(region, key, VGPU_SHARE_EXPORT)))
		error = region_share_add_locked(region, &entry);
	else
		REGION_STORE(ours->count, descriptors->file);
	region_unlock(region);
	return error;
}

static bool take_late(struct region_late_share *late, enum region_late_state state)
{
	uint32_t expected = state;

	return __atomic_compare_exchange_n(&late->state, &expected, REGION_LATE_TAKEN, false,
					   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Puts an end down that the next thread with the lock makes. False: too many wait. */
static bool put_down_late(struct region *region, uint64_t key, uint64_t bytes, bool is_import)
{
	struct region_late_share *late = region->late_shares;

	while (late < region->late_shares + REGION_LATE_SHARES_MAX &&
	       !take_late(late, REGION_LATE_FREE))
		late++;
	if (late == region->late_shares + REGION_LATE_SHARES_MAX)
		return false;
	late->key = key;
	late->bytes = bytes;
	late->is_import = is_import;
	REGION_PUBLISH(late->state, REGION_LATE_FULL); /* pairs with take_late */
	REGION_PUBLISH(region->is_late, 1);            /* pairs with the exchange in ledger.c */
	return true;
}

/* Our slot gives the memory up. Returns whether the charge remains, with our slot or another. */
static bool withdraw_locked(struct region *region, struct vgpu_region_share *charge)
{
	struct vgpu_region_share *heir = region_share_find_heir(region, charge);

	if (heir) {
		region_share_move_locked(region, charge, heir);
		return true;
	}
	if (region_share_find_our_import(region, charge)) {
		REGION_PUBLISH(charge->state, VGPU_SHARE_MOVED);
		region_step(share_kept);
		return true;
	}
	if (region_share_descriptors_left(region, charge) != 0) {
		region_share_keep_locked(region, charge);
		return true;
	}
	region_share_free_locked(charge);
	return false;
}

static bool withdraw_key_locked(struct region *region, uint64_t key, uint64_t bytes)
{
	struct vgpu_region_share *charge = region_share_find_ours(region, key, VGPU_SHARE_EXPORT);

	if (!charge)
		return false;
	if (bytes != REGION_SHARE_AS_EXPORTED)
		REGION_STORE(charge->bytes, bytes);
	return withdraw_locked(region, charge);
}

int region_share_withdraw(struct region *region, uint64_t key, uint64_t bytes)
{
	int result;

	if (region->slot < 0)
		return -EBADF;
	result = region_lock_slot(region);
	if (result == -ETIMEDOUT && put_down_late(region, key, bytes, false))
		return 1;
	if (result)
		return result;
	result = withdraw_key_locked(region, key, bytes);
	region_unlock(region);
	return result;
}

/* Counts one more import of the charge by our slot: 0, or -ENOSPC. */
static int import_locked(struct region *region, const struct vgpu_region_share *charge)
{
	struct vgpu_region_share *import = region_share_find_our_import(region, charge);
	struct vgpu_region_share entry = {
		.key = REGION_LOAD(charge->key),
		.count = 1,
		.of = (uint16_t)(charge - region->file->own.shares),
		.state = VGPU_SHARE_IMPORT,
		.device = REGION_LOAD(charge->device),
	};

	if (!import)
		return region_share_add_locked(region, &entry);
	REGION_STORE(import->count, REGION_LOAD(import->count) + 1);
	region_step(share_opened_again);
	return 0;
}

int region_share_import(struct region *region, uint64_t key, unsigned *ret_device,
			uint64_t *ret_bytes)
{
	struct vgpu_region_share *charge;
	int result;

	if (region->slot < 0)
		return -EBADF;
	result = region_lock_slot(region);
	if (result)
		return result;
	charge = region_share_find_charge(region, key);
	if (charge)
		result = import_locked(region, charge);
	if (charge && result == 0) {
		*ret_device = REGION_LOAD(charge->device) % VGPU_DEVICES_MAX;
		*ret_bytes = REGION_LOAD(charge->bytes);
		result = 1;
	}
	region_unlock(region);
	return result;
}

/* The charge's entry is free, and our slot gives the bytes back. */
static void refund_charge_locked(struct region *region, const struct vgpu_region_share *charge)
{
	unsigned device = REGION_LOAD(charge->device);

	if (device < VGPU_DEVICES_MAX)
		region_refund_locked(region, device, REGION_DATA, REGION_LOAD(charge->bytes));
}

static void import_end_locked(struct region *region, struct vgpu_region_share *import)
{
	struct vgpu_region_share *charge = region_share_charge_of(region->file, import), *heir;
	uint32_t count = REGION_LOAD(import->count);

	if (count > 1) {
		REGION_STORE(import->count, count - 1);
		region_step(share_closed_once);
		return;
	}
	region_share_free_locked(import);
	if (!charge || !region_share_has_state(charge, VGPU_SHARE_MOVED) ||
	    !region_share_is_ours(region, charge))
		return;
	heir = region_share_find_heir(region, charge);
	if (heir) {
		region_share_move_locked(region, charge, heir);
		return;
	}
	if (region_share_descriptors_left(region, charge) != 0) {
		region_share_keep_locked(region, charge);
		return;
	}
	region_share_free_locked(charge);
	refund_charge_locked(region, charge);
}

static void import_key_end_locked(struct region *region, uint64_t key)
{
	struct vgpu_region_share *import = region_share_find_ours(region, key, VGPU_SHARE_IMPORT);

	if (import)
		import_end_locked(region, import);
}

void region_share_import_end(struct region *region, uint64_t key)
{
	int error = region->slot < 0 ? -EBADF : region_lock_slot(region);

	if (error == -ETIMEDOUT)
		put_down_late(region, key, 0, true);
	if (error)
		return;
	import_key_end_locked(region, key);
	region_unlock(region);
}

/* Withdraws memory after region_share_withdraw has answered that the charge remains. */
static void withdraw_late_locked(struct region *region, const struct region_late_share *late)
{
	struct vgpu_region_share *charge =
		region_share_find_ours(region, late->key, VGPU_SHARE_EXPORT);

	if (charge && !withdraw_key_locked(region, late->key, late->bytes))
		refund_charge_locked(region, charge);
}

void region_share_settle_late_locked(struct region *region)
{
	for (unsigned i = 0; i < REGION_LATE_SHARES_MAX; i++) {
		struct region_late_share *late = &region->late_shares[i];

		if (!take_late(late, REGION_LATE_FULL))
			continue;
		if (late->is_import)
			import_key_end_locked(region, late->key);
		else
			withdraw_late_locked(region, late);
		REGION_PUBLISH(late->state, REGION_LATE_FREE);
	}
}

/* -- the ends of slots ------------------------------------------------------------------------ */

/* The process of `slot` is over, and the import is looked at:
 *
 *     an import by that slot                        is freed
 *     a dead slot's import of a charge of `slot`    is freed
 *     a living slot's import of such a charge       gets the charge
 *     any other import                              stays
 */
static void clear_import_locked(struct region *region, struct vgpu_region_share *import,
				unsigned slot)
{
	struct vgpu_region_share *charge = region_share_charge_of(region->file, import);

	if (charge && REGION_LOAD(import->slot) != slot) {
		if (REGION_LOAD(charge->slot) != slot ||
		    region_share_has_state(charge, VGPU_SHARE_KEPT))
			return; /* another slot has the charge, or descriptors keep it */
		if (region_share_may_live(region, import)) {
			region_share_move_locked(region, charge, import);
			return;
		}
	}
	region_share_free_locked(import);
}

void region_share_clear_locked(struct region *region, unsigned slot)
{
	struct vgpu_region_share *shares = region->file->own.shares;
	unsigned count = region_shares_in_use(region->file), charges = 0;

	for (unsigned i = 0; i < count; i++) {
		if (region_share_has_state(&shares[i], VGPU_SHARE_IMPORT))
			clear_import_locked(region, &shares[i], slot);
		else if (!region_share_has_state(&shares[i], VGPU_SHARE_FREE))
			charges += REGION_LOAD(shares[i].slot) == slot;
	}
	region_step(share_imports_cleared);
	/* Charges that are still the slot's have no import, or are kept by descriptors. When our
	 * own slot is cleared, as the process leaves the region, no charge of it is kept. */
	for (unsigned i = 0; charges && i < count; i++) {
		if (region_share_has_state(&shares[i], VGPU_SHARE_FREE) ||
		    REGION_LOAD(shares[i].slot) != slot)
			continue;
		if (region->counts && !region_share_is_ours(region, &shares[i]) &&
		    region_share_is_charge(&shares[i]) &&
		    region_share_must_keep(region, &shares[i]))
			region_share_take_over_locked(region, &shares[i]);
		else
			region_share_free_locked(&shares[i]);
	}
	region_step(share_all_cleared);
}

void region_share_reset_locked(struct vgpu_region_file *file)
{
	unsigned count = region_shares_in_use(file);

	for (unsigned i = 0; i < count; i++)
		REGION_PUBLISH(file->own.shares[i].state, VGPU_SHARE_FREE);
	region_step(reset_shares_freed);
	REGION_PUBLISH(file->own.share_count, 0);
	region_step(reset_shares_uncounted);
	REGION_PUBLISH(file->own.move.active, 0);
}

/* -- uncertainty for reconciliation ----------------------------------------------------------- */

/* Whether another process that may live has the memory open. Frees no entry, as the lock is not
 * held. */
static bool others_have_it_open(struct region *region, const struct vgpu_region_share *charge)
{
	unsigned count = region_shares_in_use(region->file);

	for (unsigned i = 0; i < count; i++) {
		struct vgpu_region_share *share = &region->file->own.shares[i];

		if (region_share_charge_of(region->file, share) == charge &&
		    !region_share_is_ours(region, share) && region_share_may_live(region, share))
			return true;
	}
	return false;
}

/* Adds the uncertainty from an entry of our slot. */
static void doubt_one(struct region *region, const struct vgpu_region_share *share,
		      struct region_doubt *doubt)
{
	const struct vgpu_region_share *charge;

	if (region_share_has_state(share, VGPU_SHARE_MOVED) &&
	    (others_have_it_open(region, share) ||
	     region_share_descriptors_left(region, share) != 0))
		doubt->here_bytes += REGION_LOAD(share->bytes);
	if (!region_share_has_state(share, VGPU_SHARE_IMPORT))
		return;
	charge = region_share_charge_of(region->file, share);
	if (!charge || (region_share_is_ours(region, charge) &&
			!region_share_has_state(charge, VGPU_SHARE_KEPT)))
		return;
	if (region_share_has_state(charge, VGPU_SHARE_EXPORT) &&
	    region_share_may_live(region, charge))
		doubt->lent_bytes += REGION_LOAD(charge->bytes);
	else
		doubt->elsewhere_bytes += REGION_LOAD(charge->bytes);
}

struct region_doubt region_share_doubt(struct region *region, unsigned device)
{
	bool ours = region->slot >= 0 && region_is_there(region);
	unsigned count = ours ? region_shares_in_use(region->file) : 0;
	struct region_doubt doubt = {0, 0, 0};

	for (unsigned i = 0; i < count; i++) {
		const struct vgpu_region_share *share = &region->file->own.shares[i];

		if (REGION_LOAD(share->device) == device && region_share_is_ours(region, share))
			doubt_one(region, share, &doubt);
	}
	return doubt;
}

bool region_share_has_moved_here(struct region *region, uint64_t key)
{
	return region->slot >= 0 && region_is_there(region) &&
	       region_share_find_ours(region, key, VGPU_SHARE_MOVED) != NULL;
}
