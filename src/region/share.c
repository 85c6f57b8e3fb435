/*
 * Memory that several processes of the slice have open (CUDA IPC, exported handles). It is charged
 * once, as long as any of them has it open.
 *
 * How it works. own.shares is a table with two kinds of entries. A charge (EXPORT, MOVED, KEPT)
 * says that some bytes of a slot are memory that processes can open under a key. An import says
 * that a slot has the memory open, how often, and which entry is the charge. When the slot with the
 * charge gives the memory up or dies, and another living slot imports the memory, the charge moves
 * there (move_locked): the bytes go from one slot's data class to the other's, and the entry names
 * the other slot. A slot has a MOVED charge because of its import. With its last import of the
 * memory, the charge moves on or is refunded.
 *
 * What always holds, whenever the lock is free. An entry in use names a slot that is not free. An
 * import names a charge with the same key. A slot has at most one import of a charge, so a charge
 * without imports can be freed alone. No slot exports a key twice. The bytes of a charge that moved
 * to a slot are in that slot's data class. Two slots may export the same key, as hashes may
 * coincide: each has its charge and its imports, and an import goes to one of the two.
 *
 * An entry names a slot and the claim of it. Entries of a dead process are cleared before another
 * process fills in the slot. Between the two, the next owner may have counted its claim already;
 * the claim in the entry tells the dead process from that owner (is_living).
 *
 * The lock protects all of it. Charges and refunds of other memory never look at the table.
 *
 * If the process is killed on any line. An entry is filled in while its state is free, and
 * published by its state. What a process had begun with its own entries ends when its slot is
 * cleared, which can be repeated: its entries are freed before its status. A move changes the
 * figures of two slots. So own.move has the figures to be reached, not differences, before the move
 * begins. The process that takes the lock over does the whole move again before anything else
 * (region_share_repair_locked). No process had the lock in between, so the figures still apply.
 *
 * Memory of which file descriptors are left (descriptor.c) stays charged when no process has it
 * open. The charge is KEPT then, in the offset class, as no process's NVML figure has the memory.
 * It stays with its slot until there is no import and no descriptor (region_share_look). When that
 * slot's process dies, the process that clears the slot is first charged itself, and then takes the
 * entry over: after a kill in between, the next process does both. An onlooker, and a process whose
 * slot does not count yet, leave such a slot as it is. Only classes of the own slot change, so
 * own.move is not used.
 *
 * What it is not: a check of keys. The keys say whether memory is the same.
 */
#include <errno.h>

#include "region_internal.h"

#define DOUBTFUL_MOST 64 /* keys that are looked up together */

unsigned region_shares_in_use(const struct vgpu_region_file *file)
{
	uint32_t count = REGION_LOAD(file->own.share_count);

	return count > VGPU_SHARES_MAX ? VGPU_SHARES_MAX : count;
}

/* -- entries ---------------------------------------------------------------------------------- */

static bool has_state(const struct vgpu_region_share *share, enum vgpu_share_state state)
{
	return REGION_LOAD(share->state) == state;
}

bool region_share_is_charge(const struct vgpu_region_share *share)
{
	return (has_state(share, VGPU_SHARE_EXPORT) || has_state(share, VGPU_SHARE_MOVED) ||
		has_state(share, VGPU_SHARE_KEPT)) &&
	       REGION_LOAD(share->slot) < VGPU_SLOTS_MAX &&
	       REGION_LOAD(share->device) < VGPU_DEVICES_MAX;
}

struct vgpu_region_share *region_share_charge_of(struct vgpu_region_file *file,
						 const struct vgpu_region_share *import)
{
	uint16_t of = REGION_LOAD(import->of);
	struct vgpu_region_share *charge;

	if (!has_state(import, VGPU_SHARE_IMPORT) || of >= VGPU_SHARES_MAX)
		return NULL;
	charge = &file->own.shares[of];
	if (!region_share_is_charge(charge) || REGION_LOAD(charge->key) != REGION_LOAD(import->key))
		return NULL;
	return charge;
}

static uint32_t claim_of(const struct vgpu_region_file *file, unsigned slot)
{
	return (uint32_t)REGION_LOAD(file->own.slots[slot].claims);
}

/* Whether the process that the entry names may live. */
static bool is_living(struct region *region, const struct vgpu_region_share *share)
{
	unsigned slot = REGION_LOAD(share->slot);

	return slot < VGPU_SLOTS_MAX && !region_slot_is_free(region->file, slot) &&
	       REGION_LOAD(share->claim) == claim_of(region->file, slot) &&
	       region_slot_alive(region, slot);
}

static bool is_ours(const struct region *region, const struct vgpu_region_share *share)
{
	unsigned slot = (unsigned)region->slot;

	return REGION_LOAD(share->slot) == slot &&
	       REGION_LOAD(share->claim) == claim_of(region->file, slot);
}

/* Puts an entry of ours into the table: 0, or -ENOSPC. */
static int add_locked(struct region *region, const struct vgpu_region_share *entry)
{
	struct vgpu_region_own *own = &region->file->own;
	struct vgpu_region_share *at;
	uint32_t i = 0;

	while (i < VGPU_SHARES_MAX && !has_state(&own->shares[i], VGPU_SHARE_FREE))
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
	REGION_STORE(at->claim, claim_of(region->file, (unsigned)region->slot));
	REGION_STORE(at->count, entry->count);
	REGION_STORE(at->slot, (uint16_t)region->slot);
	REGION_STORE(at->of, entry->of);
	REGION_STORE(at->device, entry->device);
	region_step(share_filled);
	REGION_PUBLISH(at->state, entry->state); /* last: a kill must not leave it used and empty */
	region_step(share_published);
	return 0;
}

static void free_locked(struct vgpu_region_share *share)
{
	REGION_PUBLISH(share->state, VGPU_SHARE_FREE);
	region_step(share_freed);
}

/* Our entry of that key and state, or NULL. */
static struct vgpu_region_share *find_ours(struct region *region, uint64_t key,
					   enum vgpu_share_state state)
{
	unsigned count = region_shares_in_use(region->file);

	for (unsigned i = 0; i < count; i++) {
		struct vgpu_region_share *share = &region->file->own.shares[i];

		if (has_state(share, state) && REGION_LOAD(share->key) == key &&
		    is_ours(region, share))
			return share;
	}
	return NULL;
}

/* Our import of that charge, or NULL. */
static struct vgpu_region_share *find_our_import(struct region *region,
						 const struct vgpu_region_share *charge)
{
	unsigned count = region_shares_in_use(region->file);

	for (unsigned i = 0; i < count; i++) {
		struct vgpu_region_share *share = &region->file->own.shares[i];

		if (region_share_charge_of(region->file, share) == charge && is_ours(region, share))
			return share;
	}
	return NULL;
}

/* The charge that an import of the key belongs to, or NULL. A charge of a living slot comes before
 * one of a dead slot, which has not moved yet. An exported charge comes before a moved one, which
 * may be of memory that had the key earlier. */
static struct vgpu_region_share *find_charge(struct region *region, uint64_t key)
{
	unsigned count = region_shares_in_use(region->file), best_rank = 0;
	struct vgpu_region_share *best = NULL;

	for (unsigned i = 0; i < count; i++) {
		struct vgpu_region_share *share = &region->file->own.shares[i];
		unsigned rank;

		if (!region_share_is_charge(share) || REGION_LOAD(share->key) != key)
			continue;
		rank = 1 + (has_state(share, VGPU_SHARE_EXPORT) ? 1u : 0u) +
		       (is_living(region, share) ? 2u : 0u);
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

/* Moves the charge to the slot that has that import of it. At most the bytes of the data class
 * move: a refund without a withdrawal is not undone. */
static void move_locked(struct region *region, struct vgpu_region_share *charge,
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

/* An import of the charge by a living slot other than ours, or NULL. Imports of dead slots that
 * come first are freed: after NULL, only our slot may have imports of the charge. */
static struct vgpu_region_share *find_heir(struct region *region,
					   const struct vgpu_region_share *charge)
{
	unsigned count = region_shares_in_use(region->file);

	for (unsigned i = 0; i < count; i++) {
		struct vgpu_region_share *share = &region->file->own.shares[i];

		if (region_share_charge_of(region->file, share) != charge || is_ours(region, share))
			continue;
		if (is_living(region, share))
			return share;
		free_locked(share);
	}
	return NULL;
}

/* -- descriptors ------------------------------------------------------------------------------ */

/* 1, 0, or negative for "not to be learnt". */
static int descriptors_left(struct region *region, const struct vgpu_region_share *charge)
{
	const struct region_descriptors descriptors = {REGION_LOAD(charge->key),
						       REGION_LOAD(charge->count)};

	return region_is_descriptor_key(descriptors.key)
		       ? region_descriptors_left(region, &descriptors)
		       : 0;
}

/* Makes our slot's charge a KEPT one: its bytes go from the data class to the offset class. */
static void keep_locked(struct region *region, struct vgpu_region_share *charge)
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
	return find_our_import(region, charge) || find_heir(region, charge);
}

/* Whether the charge must stay although its slot is over and the charge has moved to no import. An
 * onlooker that cannot tell leaves that to processes that have slots, if there are any. */
static bool must_keep(struct region *region, const struct vgpu_region_share *charge)
{
	int left;

	if (has_state(charge, VGPU_SHARE_KEPT) && is_open(region, charge))
		return true;
	left = descriptors_left(region, charge);
	return left > 0 || (left < 0 && (region->slot >= 0 || region_anybody_lives(region)));
}

/* Our slot, which counts, takes over what descriptors keep. */
static void take_over_locked(struct region *region, struct vgpu_region_share *charge)
{
	unsigned slot = (unsigned)region->slot;

	region_charge_locked(region, REGION_LOAD(charge->device) % VGPU_DEVICES_MAX, REGION_OFFSET,
			     REGION_LOAD(charge->bytes));
	REGION_PUBLISH(charge->state, VGPU_SHARE_KEPT);
	REGION_PUBLISH(charge->claim, claim_of(region->file, slot));
	REGION_PUBLISH(charge->slot, (uint16_t)slot);
	region_step(share_kept);
}

static bool is_kept_by_us(struct region *region, const struct vgpu_region_share *share)
{
	return has_state(share, VGPU_SHARE_KEPT) && region_share_is_charge(share) &&
	       is_ours(region, share);
}

/* No descriptor was left of that key. */
static bool let_go_of_kept(struct region *region, struct vgpu_region_share *charge, uint64_t key)
{
	bool gone;

	if (region_lock_slot(region) != 0)
		return false;
	/* Descriptors can only become more where somebody has the memory open. */
	gone = is_kept_by_us(region, charge) && REGION_LOAD(charge->key) == key &&
	       !is_open(region, charge) && descriptors_left(region, charge) <= 0;
	if (gone) {
		free_locked(charge);
		region_refund_locked(region, REGION_LOAD(charge->device) % VGPU_DEVICES_MAX,
				     REGION_OFFSET, REGION_LOAD(charge->bytes));
	}
	region_unlock(region);
	return gone;
}

/* Whether somebody died from whose slot descriptors may keep something. */
static bool any_dead_exporter(struct region *region)
{
	unsigned count = region_shares_in_use(region->file), asked = VGPU_SLOTS_MAX;

	for (unsigned i = 0; i < count; i++) {
		struct vgpu_region_share *share = &region->file->own.shares[i];

		if (!region_is_descriptor_key(REGION_LOAD(share->key)) ||
		    !region_share_is_charge(share) || REGION_LOAD(share->slot) == asked)
			continue;
		asked = REGION_LOAD(share->slot);
		if (!is_living(region, share))
			return true;
	}
	return false;
}

/* What our slot keeps and nothing but /proc/locks tells of. */
struct doubtful {
	uint64_t keys[DOUBTFUL_MOST];
	unsigned entries[DOUBTFUL_MOST];
	unsigned count;
};

static bool look_at_kept(struct region *region, unsigned i, struct doubtful *doubtful)
{
	struct vgpu_region_share *charge = &region->file->own.shares[i];
	uint64_t key = REGION_LOAD(charge->key);
	int left = descriptors_left(region, charge);

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

	/* Before they are listed: what nobody has open then, nobody can export again. */
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
		    descriptors_left(region, &region->file->own.shares[i]) == 1)
			return true;
	return false;
}

bool region_share_needs_keeper(struct region *region, unsigned slot)
{
	unsigned count = region_shares_in_use(region->file);

	for (unsigned i = 0; i < count; i++) {
		struct vgpu_region_share *share = &region->file->own.shares[i];

		if (region_share_is_charge(share) && REGION_LOAD(share->slot) == slot &&
		    (has_state(share, VGPU_SHARE_KEPT) || !find_heir(region, share)) &&
		    must_keep(region, share))
			return true;
	}
	return false;
}

/* -- the contract ----------------------------------------------------------------------------- */

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
	else if (!(ours = find_ours(region, key, VGPU_SHARE_EXPORT)))
		error = add_locked(region, &entry);
	else
		REGION_STORE(ours->count, descriptors->file);
	region_unlock(region);
	return error;
}

/* Our slot gives the memory up. Returns whether the charge remains, with our slot or another. */
static bool withdraw_locked(struct region *region, struct vgpu_region_share *charge)
{
	struct vgpu_region_share *heir = find_heir(region, charge);

	if (heir) {
		move_locked(region, charge, heir);
		return true;
	}
	if (find_our_import(region, charge)) {
		REGION_PUBLISH(charge->state, VGPU_SHARE_MOVED);
		region_step(share_kept);
		return true;
	}
	if (descriptors_left(region, charge) != 0) {
		keep_locked(region, charge);
		return true;
	}
	free_locked(charge);
	return false;
}

int region_share_withdraw(struct region *region, uint64_t key, uint64_t bytes)
{
	struct vgpu_region_share *charge;
	int result;

	if (region->slot < 0)
		return -EBADF;
	result = region_lock_slot(region);
	if (result)
		return result;
	charge = find_ours(region, key, VGPU_SHARE_EXPORT);
	if (charge) {
		if (bytes != REGION_SHARE_AS_EXPORTED)
			REGION_STORE(charge->bytes, bytes);
		result = withdraw_locked(region, charge);
	}
	region_unlock(region);
	return result;
}

/* One import more of the charge by our slot: 0, or -ENOSPC. */
static int import_locked(struct region *region, const struct vgpu_region_share *charge)
{
	struct vgpu_region_share *import = find_our_import(region, charge);
	struct vgpu_region_share entry = {
		.key = REGION_LOAD(charge->key),
		.count = 1,
		.of = (uint16_t)(charge - region->file->own.shares),
		.state = VGPU_SHARE_IMPORT,
		.device = REGION_LOAD(charge->device),
	};

	if (!import)
		return add_locked(region, &entry);
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
	charge = find_charge(region, key);
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

static void import_end_locked(struct region *region, struct vgpu_region_share *import)
{
	struct vgpu_region_share *charge = region_share_charge_of(region->file, import), *heir;
	uint32_t count = REGION_LOAD(import->count);
	unsigned device;

	if (count > 1) {
		REGION_STORE(import->count, count - 1);
		region_step(share_closed_once);
		return;
	}
	free_locked(import);
	if (!charge || !has_state(charge, VGPU_SHARE_MOVED) || !is_ours(region, charge))
		return;
	heir = find_heir(region, charge);
	if (heir) {
		move_locked(region, charge, heir);
		return;
	}
	if (descriptors_left(region, charge) != 0) {
		keep_locked(region, charge);
		return;
	}
	free_locked(charge);
	device = REGION_LOAD(charge->device);
	if (device < VGPU_DEVICES_MAX)
		region_refund_locked(region, device, REGION_DATA, REGION_LOAD(charge->bytes));
}

void region_share_import_end(struct region *region, uint64_t key)
{
	struct vgpu_region_share *import;

	if (region->slot < 0 || region_lock_slot(region) != 0)
		return;
	import = find_ours(region, key, VGPU_SHARE_IMPORT);
	if (import)
		import_end_locked(region, import);
	region_unlock(region);
}

/* -- the ends of slots ------------------------------------------------------------------------ */

/* An import, when the process of the slot is over: its own goes, and so does a dead one's of what
 * it had charged; a living one's is given the charge. */
static void clear_import_locked(struct region *region, struct vgpu_region_share *import,
				unsigned slot)
{
	struct vgpu_region_share *charge = region_share_charge_of(region->file, import);

	if (charge && REGION_LOAD(import->slot) != slot) {
		if (REGION_LOAD(charge->slot) != slot || has_state(charge, VGPU_SHARE_KEPT))
			return; /* none of its business, or given to somebody just now */
		if (is_living(region, import)) {
			move_locked(region, charge, import);
			return;
		}
	}
	free_locked(import);
}

void region_share_clear_locked(struct region *region, unsigned slot)
{
	struct vgpu_region_share *shares = region->file->own.shares;
	unsigned count = region_shares_in_use(region->file), charges = 0;

	for (unsigned i = 0; i < count; i++) {
		if (has_state(&shares[i], VGPU_SHARE_IMPORT))
			clear_import_locked(region, &shares[i], slot);
		else if (!has_state(&shares[i], VGPU_SHARE_FREE))
			charges += REGION_LOAD(shares[i].slot) == slot;
	}
	region_step(share_imports_cleared);
	/* What is the slot's still, nobody imports, or it is kept. Our own slot is cleared when we
	 * leave it, and then nobody keeps anything. */
	for (unsigned i = 0; charges && i < count; i++) {
		if (has_state(&shares[i], VGPU_SHARE_FREE) || REGION_LOAD(shares[i].slot) != slot)
			continue;
		if (region->counts && !is_ours(region, &shares[i]) &&
		    region_share_is_charge(&shares[i]) && must_keep(region, &shares[i]))
			take_over_locked(region, &shares[i]);
		else
			free_locked(&shares[i]);
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

/* Whether another process that may live has the memory open. Frees no entry, as the lock is not
 * held. */
static bool others_have_it_open(struct region *region, const struct vgpu_region_share *charge)
{
	unsigned count = region_shares_in_use(region->file);

	for (unsigned i = 0; i < count; i++) {
		struct vgpu_region_share *share = &region->file->own.shares[i];

		if (region_share_charge_of(region->file, share) == charge &&
		    !is_ours(region, share) && is_living(region, share))
			return true;
	}
	return false;
}

/* Adds the uncertainty from an entry of our slot. */
static void doubt_one(struct region *region, const struct vgpu_region_share *share,
		      struct region_doubt *doubt)
{
	const struct vgpu_region_share *charge;

	if (has_state(share, VGPU_SHARE_MOVED) &&
	    (others_have_it_open(region, share) || descriptors_left(region, share) != 0))
		doubt->here_bytes += REGION_LOAD(share->bytes);
	if (!has_state(share, VGPU_SHARE_IMPORT))
		return;
	charge = region_share_charge_of(region->file, share);
	if (!charge || (is_ours(region, charge) && !has_state(charge, VGPU_SHARE_KEPT)))
		return;
	if (has_state(charge, VGPU_SHARE_EXPORT) && is_living(region, charge))
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

		if (REGION_LOAD(share->device) == device && is_ours(region, share))
			doubt_one(region, share, &doubt);
	}
	return doubt;
}
