/*
 * Each kind has a table that maps a handle to its charge. mapping.c has the table of mappings, and
 * binding.c the table of bindings. One lock, holding_lock, protects all tables. It is never held
 * while the driver is called.
 *
 * A reference ends when the driver's call that drops it has returned. Until then the entry stays.
 * So the memory stays charged while another thread's call has not dropped its reference yet, and a
 * reference that is made meanwhile counts. References, mappings, bindings and releases name their
 * memory by the entry's serial, as the driver may give the handle to other memory at any time.
 *
 * Always: the charge of a kind is the sum over its entries and reservations; small.c computes the
 * charge of arrays that share granules. A reference that could not be recorded is one too many for
 * good: then the memory stays charged, which is the safe side.
 */
#include "holding.h"

#include <errno.h>

#include "account.h"
#include "blocks.h"
#include "export.h"
#include "holding_internal.h"
#include "small.h"
#include "table.h"

#define SHARED_BYTES_MOST ((uint64_t)1 << 20) /* bigger arrays have granules of their own */

struct lock holding_lock = LOCK_INIT;
static struct table tables[HOLDING_KINDS]; /* under `holding_lock` */
/* Entries whose handle the driver has given to other memory while calls that make or release
 * references to them have not returned, by serial. Under `holding_lock`. */
static struct table replaced[HOLDING_KINDS];
static uint32_t serials; /* of entries and mappings; under `holding_lock` */

void holdings_forked(void)
{
	lock_init(&holding_lock);
	for (unsigned kind = 0; kind < HOLDING_KINDS; kind++) {
		table_clear(&tables[kind]);
		table_clear(&replaced[kind]);
	}
	mappings_forked();
	bindings_forked();
	small_forked();
}

/* -- charging ---------------------------------------------------------------------------------- */

static enum region_class class_of(enum holding_kind kind)
{
	return kind == HOLDING_IMPORT ? REGION_OFFSET : REGION_DATA;
}

static int charge_locked(const struct holding_reservation *reservation)
{
	if (reservation->shared)
		return small_add(reservation->device, reservation->context, reservation->bytes);
	return reservation->bytes ? account_charge_as(class_of(reservation->kind),
						      reservation->device, reservation->bytes)
				  : 0;
}

static void refund_locked(enum holding_kind kind, int device, uint64_t context, bool shared,
			  uint64_t bytes)
{
	if (shared)
		small_remove(device, context, bytes);
	else
		account_refund_as(class_of(kind), device, bytes);
}

uint64_t holdings_doubt(int device)
{
	uint64_t bytes;

	lock_acquire(&holding_lock);
	bytes = small_doubt(device);
	lock_release(&holding_lock);
	return bytes;
}

void holdings_lower(int device, uint64_t bytes)
{
	lock_acquire(&holding_lock);
	small_lower(device, bytes);
	lock_release(&holding_lock);
}

/* -- holding ----------------------------------------------------------------------------------- */

int quota_holding_reserve(enum holding_kind kind, int device, uint64_t context, uint64_t size_bytes,
			  struct holding_reservation *ret_reservation)
{
	struct holding_reservation reservation = {
		.kind = kind, .device = device, .context = context};
	int error;

	if (size_bytes > SIZE_BYTES_MOST)
		return -EDQUOT;
	reservation.shared = kind == HOLDING_ARRAY && size_bytes && size_bytes <= SHARED_BYTES_MOST;
	reservation.bytes = reservation.shared ? size_bytes : granules_of(size_bytes);
	account_begin();
	lock_acquire(&holding_lock);
	error = charge_locked(&reservation);
	lock_release(&holding_lock);
	if (error) {
		account_end();
		return error;
	}
	*ret_reservation = reservation;
	return 0;
}

void quota_holding_cancel(const struct holding_reservation *reservation)
{
	lock_acquire(&holding_lock);
	refund_locked(reservation->kind, reservation->device, reservation->context,
		      reservation->shared, reservation->bytes);
	lock_release(&holding_lock);
	account_end();
}

static uint64_t replaced_key(uint32_t serial)
{
	return (uint64_t)1 << 32 | serial; /* never 0 */
}

/* The driver gives the handle to other memory, so the memory that had it is gone. Calls that make
 * or release a reference to that memory, and have not returned, refund its charge. Without such a
 * call, the library did not see the memory's end, and refunds the charge here. */
static void replace_locked(enum holding_kind kind, struct entry *entry)
{
	struct entry *kept =
		entry->pending ? table_add(&replaced[kind], replaced_key(entry->serial)) : NULL;

	if (kept) {
		*kept = *entry;
		kept->key = replaced_key(entry->serial);
		if (kept->references > kept->pending)
			kept->references = kept->pending;
	} else {
		refund_locked(kind, entry->device, entry->context, entry->shared, entry->amount);
	}
}

uint32_t holding_new_serial_locked(void)
{
	return ++serials;
}

uint32_t holding_newest_serial_locked(void)
{
	return serials;
}

int quota_holding_add(const struct holding_reservation *reservation, uint64_t handle)
{
	struct table *table = &tables[reservation->kind];
	struct entry *entry;

	lock_acquire(&holding_lock);
	entry = table_find(table, handle);
	if (entry)
		replace_locked(reservation->kind, entry);
	else
		entry = table_add(table, handle);
	if (entry) {
		entry->context = reservation->context;
		entry->amount = reservation->bytes;
		entry->device = (uint16_t)reservation->device;
		entry->shared = reservation->shared;
		entry->exported = false;
		entry->references = 1;
		entry->pending = 0;
		entry->serial = holding_new_serial_locked();
	}
	lock_release(&holding_lock);
	if (!entry)
		return -ENOMEM;
	account_end();
	return 0;
}

/* The entry with that serial, in the table where it is. NULL: its context has ended, or a reference
 * too many was released. */
static struct entry *find_serial_locked(enum holding_kind kind, uint64_t handle, uint32_t serial,
					struct table **ret_table)
{
	struct entry *entry;

	*ret_table = &tables[kind];
	entry = table_find(*ret_table, handle);
	if (entry && entry->serial == serial)
		return entry;
	*ret_table = &replaced[kind];
	return table_find(*ret_table, replaced_key(serial));
}

const struct entry *holding_find_locked(enum holding_kind kind, uint64_t handle)
{
	return table_find(&tables[kind], handle);
}

bool holding_refer_locked(enum holding_kind kind, uint64_t handle, struct holding_reference *ret)
{
	struct entry *entry = table_find(&tables[kind], handle);

	*ret = (struct holding_reference){.kind = kind, .handle = handle, .device = -1};
	if (!entry)
		return false;
	entry->references++;
	entry->pending++;
	ret->serial = entry->serial;
	ret->device = entry->device;
	ret->bytes = entry->amount;
	return true;
}

bool quota_reference_begin(enum holding_kind kind, uint64_t handle, struct holding_reference *ret)
{
	bool known;

	lock_acquire(&holding_lock);
	known = holding_refer_locked(kind, handle, ret);
	lock_release(&holding_lock);
	return known;
}

bool quota_reference_is_stale(const struct holding_reference *reference)
{
	const struct entry *entry;
	bool stale;

	lock_acquire(&holding_lock);
	entry = table_find(&tables[reference->kind], reference->handle);
	stale = !entry || entry->serial != reference->serial;
	lock_release(&holding_lock);
	return stale;
}

bool quota_reference_renew(struct holding_reference *reference, struct holding_reference *ret_old)
{
	const struct entry *entry;
	bool stale;

	lock_acquire(&holding_lock);
	entry = table_find(&tables[reference->kind], reference->handle);
	stale = !entry || entry->serial != reference->serial;
	if (stale) {
		*ret_old = *reference;
		holding_refer_locked(reference->kind, reference->handle, reference);
	}
	lock_release(&holding_lock);
	return stale;
}

void holding_keep_locked(const struct holding_reference *reference)
{
	struct table *table;
	struct entry *entry =
		find_serial_locked(reference->kind, reference->handle, reference->serial, &table);

	if (entry)
		entry->pending--;
}

void quota_reference_keep(const struct holding_reference *reference)
{
	lock_acquire(&holding_lock);
	holding_keep_locked(reference);
	lock_release(&holding_lock);
}

static void fill_release(const struct entry *entry, enum holding_kind kind, uint64_t handle,
			 struct holding_release *ret_release)
{
	*ret_release = (struct holding_release){.kind = kind,
						.handle = handle,
						.context = entry->context,
						.device = entry->device,
						.serial = entry->serial,
						.last = entry->references == entry->pending,
						.shared = entry->shared,
						.exported = entry->exported,
						.bytes = entry->amount};
}

bool quota_reference_drop(const struct holding_reference *reference,
			  struct holding_release *ret_release)
{
	const struct entry *entry;
	struct table *table;

	account_begin();
	lock_acquire(&holding_lock);
	entry = find_serial_locked(reference->kind, reference->handle, reference->serial, &table);
	if (entry)
		fill_release(entry, reference->kind, reference->handle, ret_release);
	lock_release(&holding_lock);
	if (!entry)
		account_end();
	return entry != NULL;
}

static void note_export_locked(struct entry *entry)
{
	if (entry)
		entry->exported = true;
}

uint32_t quota_holding_note_export(uint64_t handle)
{
	struct entry *entry;
	uint32_t serial;

	lock_acquire(&holding_lock);
	entry = table_find(&tables[HOLDING_PHYSICAL], handle);
	note_export_locked(entry);
	serial = entry ? entry->serial : 0;
	lock_release(&holding_lock);
	return serial;
}

void quota_reference_note_export(const struct holding_reference *reference)
{
	struct table *table;

	lock_acquire(&holding_lock);
	note_export_locked(
		find_serial_locked(reference->kind, reference->handle, reference->serial, &table));
	lock_release(&holding_lock);
}

bool quota_holding_charge(enum holding_kind kind, uint64_t handle, int *ret_device,
			  uint64_t *ret_bytes)
{
	const struct entry *entry;

	lock_acquire(&holding_lock);
	entry = table_find(&tables[kind], handle);
	if (entry) {
		*ret_device = entry->device;
		*ret_bytes = entry->amount;
	}
	lock_release(&holding_lock);
	return entry != NULL;
}

/* -- releasing -------------------------------------------------------------------------------- */

/* Begins to release a reference to the entry (NULL: there is none). */
static bool let_go_locked(struct entry *entry, enum holding_kind kind, uint64_t handle,
			  struct holding_release *ret_release)
{
	if (!entry)
		return false;
	entry->pending++;
	fill_release(entry, kind, handle, ret_release);
	return true;
}

bool holding_let_go_locked(const struct entry *referrer, struct holding_release *ret_release)
{
	struct table *table;
	struct entry *entry = find_serial_locked(HOLDING_PHYSICAL, referrer->handle,
						 referrer->memory_serial, &table);

	return let_go_locked(entry, HOLDING_PHYSICAL, referrer->handle, ret_release);
}

static struct entry *entry_of_locked(const struct holding_release *release,
				     struct table **ret_table)
{
	return find_serial_locked(release->kind, release->handle, release->serial, ret_table);
}

void holding_end_locked(struct holding_release *release)
{
	struct table *table;
	struct entry *entry = entry_of_locked(release, &table);
	bool ends = !release->mapping || mapping_remove_locked(release);

	release->ended = true;
	release->last = ends && entry && entry->references == 1;
	if (!entry)
		return;
	release->replaced = table == &replaced[release->kind];
	release->exported = entry->exported;
	entry->pending--;
	if (ends)
		entry->references--;
	if (release->last)
		table_remove(table, entry);
}

bool quota_holding_unref_begin(enum holding_kind kind, uint64_t handle,
			       struct holding_release *ret_release)
{
	bool known;

	account_begin();
	lock_acquire(&holding_lock);
	known = let_go_locked(table_find(&tables[kind], handle), kind, handle, ret_release);
	lock_release(&holding_lock);
	if (!known)
		account_end();
	return known;
}

void quota_holding_unref_end(struct holding_release *release)
{
	lock_acquire(&holding_lock);
	if (!release->ended)
		holding_end_locked(release);
	lock_release(&holding_lock);
}

/* Other processes or descriptors may keep exported memory, and its charge. */
void quota_holding_unref_commit(struct holding_release *release)
{
	uint64_t bytes = release->bytes;

	lock_acquire(&holding_lock);
	if (!release->ended)
		holding_end_locked(release);
	lock_release(&holding_lock);
	if (release->last && release->kind == HOLDING_PHYSICAL)
		bytes -= exports_end(quota_holding_number(release->serial), bytes, bytes);
	lock_acquire(&holding_lock);
	if (release->last)
		refund_locked(release->kind, release->device, release->context, release->shared,
			      bytes);
	lock_release(&holding_lock);
	account_end();
}

void quota_holding_unref_undo(struct holding_release *release)
{
	struct table *table;
	struct entry *entry;

	lock_acquire(&holding_lock);
	entry = entry_of_locked(release, &table);
	if (entry)
		entry->pending--;
	lock_release(&holding_lock);
	account_end();
}

/* -- contexts ---------------------------------------------------------------------------------- */

struct sweep {
	enum holding_kind kind;
	uint64_t context;
};

static bool sweep_entry(void *arg, const struct entry *entry)
{
	const struct sweep *sweep = arg;

	if (entry->context != sweep->context)
		return false;
	refund_locked(sweep->kind, entry->device, entry->context, entry->shared, entry->amount);
	return true;
}

void holdings_end_context(uint64_t context)
{
	struct sweep arrays = {HOLDING_ARRAY, context}, imports = {HOLDING_IMPORT, context};

	lock_acquire(&holding_lock);
	table_remove_if(&tables[HOLDING_ARRAY], sweep_entry, &arrays);
	table_remove_if(&tables[HOLDING_IMPORT], sweep_entry, &imports);
	table_remove_if(&replaced[HOLDING_ARRAY], sweep_entry, &arrays);
	table_remove_if(&replaced[HOLDING_IMPORT], sweep_entry, &imports);
	lock_release(&holding_lock);
}
