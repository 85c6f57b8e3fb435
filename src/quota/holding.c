/*
 * Each kind has a table that maps a handle to its charge. A further table maps the address of a
 * mapping to a physical handle. Another one maps the place of a binding to a physical handle and an
 * owner. One lock protects all tables. It is never held while the driver is called.
 *
 * A reference ends when the driver's call that drops it has returned. Until then the entry stays.
 * So the memory stays charged while another thread's call has not dropped its reference yet, and a
 * reference that is made meanwhile counts. References, mappings, bindings and releases name their
 * memory by the entry's serial, as the driver may give the handle to other memory at any time.
 *
 * Always: the charge of a kind is the sum over its entries and reservations; small.c computes the
 * charge of arrays that share granules. A reference that could not be recorded is one too many for
 * good: then the memory stays charged, which is the safe side.
 *
 * A mapping stays in its table until the driver has unmapped it, too. Several calls may be about to
 * unmap it, of which the driver refuses some. The one that removes the mapping ends its reference.
 */
#include "holding.h"

#include <errno.h>

#include "account.h"
#include "export.h"
#include "lock.h"
#include "small.h"
#include "table.h"

#define SHARED_BYTES_MOST ((uint64_t)1 << 20) /* bigger arrays have granules of their own */

static struct lock lock = LOCK_INIT;
static struct table tables[HOLDING_KINDS]; /* under `lock` */
/* Entries whose handle the driver has given to other memory while calls that make or release
 * references to them have not returned, by serial. Under `lock`. */
static struct table replaced[HOLDING_KINDS];
static uint32_t serials;      /* of entries and mappings; under `lock` */
static struct table mappings; /* address to handle and serials; under `lock` */
static struct table bindings; /* place to handle, its serial, owner; under `lock` */

void holdings_forked(void)
{
	lock_init(&lock);
	for (unsigned kind = 0; kind < HOLDING_KINDS; kind++) {
		table_clear(&tables[kind]);
		table_clear(&replaced[kind]);
	}
	table_clear(&mappings);
	table_clear(&bindings);
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

	lock_acquire(&lock);
	bytes = small_doubt(device);
	lock_release(&lock);
	return bytes;
}

void holdings_lower(int device, uint64_t bytes)
{
	lock_acquire(&lock);
	small_lower(device, bytes);
	lock_release(&lock);
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
	lock_acquire(&lock);
	error = charge_locked(&reservation);
	lock_release(&lock);
	if (error) {
		account_end();
		return error;
	}
	*ret_reservation = reservation;
	return 0;
}

void quota_holding_cancel(const struct holding_reservation *reservation)
{
	lock_acquire(&lock);
	refund_locked(reservation->kind, reservation->device, reservation->context,
		      reservation->shared, reservation->bytes);
	lock_release(&lock);
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

int quota_holding_add(const struct holding_reservation *reservation, uint64_t handle)
{
	struct table *table = &tables[reservation->kind];
	struct entry *entry;

	lock_acquire(&lock);
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
		entry->serial = ++serials;
	}
	lock_release(&lock);
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

/* Begins a reference to the memory that has the handle now. */
static bool refer_locked(enum holding_kind kind, uint64_t handle, struct holding_reference *ret)
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

	lock_acquire(&lock);
	known = refer_locked(kind, handle, ret);
	lock_release(&lock);
	return known;
}

bool quota_reference_is_stale(const struct holding_reference *reference)
{
	const struct entry *entry;
	bool stale;

	lock_acquire(&lock);
	entry = table_find(&tables[reference->kind], reference->handle);
	stale = !entry || entry->serial != reference->serial;
	lock_release(&lock);
	return stale;
}

bool quota_reference_renew(struct holding_reference *reference, struct holding_reference *ret_old)
{
	const struct entry *entry;
	bool stale;

	lock_acquire(&lock);
	entry = table_find(&tables[reference->kind], reference->handle);
	stale = !entry || entry->serial != reference->serial;
	if (stale) {
		*ret_old = *reference;
		refer_locked(reference->kind, reference->handle, reference);
	}
	lock_release(&lock);
	return stale;
}

static void keep_locked(const struct holding_reference *reference)
{
	struct table *table;
	struct entry *entry =
		find_serial_locked(reference->kind, reference->handle, reference->serial, &table);

	if (entry)
		entry->pending--;
}

void quota_reference_keep(const struct holding_reference *reference)
{
	lock_acquire(&lock);
	keep_locked(reference);
	lock_release(&lock);
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
	lock_acquire(&lock);
	entry = find_serial_locked(reference->kind, reference->handle, reference->serial, &table);
	if (entry)
		fill_release(entry, reference->kind, reference->handle, ret_release);
	lock_release(&lock);
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

	lock_acquire(&lock);
	entry = table_find(&tables[HOLDING_PHYSICAL], handle);
	note_export_locked(entry);
	serial = entry ? entry->serial : 0;
	lock_release(&lock);
	return serial;
}

void quota_reference_note_export(const struct holding_reference *reference)
{
	struct table *table;

	lock_acquire(&lock);
	note_export_locked(
		find_serial_locked(reference->kind, reference->handle, reference->serial, &table));
	lock_release(&lock);
}

bool quota_holding_charge(enum holding_kind kind, uint64_t handle, int *ret_device,
			  uint64_t *ret_bytes)
{
	const struct entry *entry;

	lock_acquire(&lock);
	entry = table_find(&tables[kind], handle);
	if (entry) {
		*ret_device = entry->device;
		*ret_bytes = entry->amount;
	}
	lock_release(&lock);
	return entry != NULL;
}

bool quota_holding_is_known(enum holding_kind kind, uint64_t handle)
{
	uint64_t bytes;
	int device;

	return quota_holding_charge(kind, handle, &device, &bytes);
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

/* The same of a reference that a mapping or a binding has. */
static bool let_go_of_locked(const struct entry *referrer, struct holding_release *ret_release)
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

/* Removes the mapping of the release. False: another call has, and has ended its reference. */
static bool end_mapping_locked(const struct holding_release *release)
{
	struct entry *mapping = table_find(&mappings, release->address);

	if (!mapping || mapping->serial != release->mapping)
		return false;
	table_remove(&mappings, mapping);
	return true;
}

static void end_locked(struct holding_release *release)
{
	struct table *table;
	struct entry *entry = entry_of_locked(release, &table);
	bool ends = !release->mapping || end_mapping_locked(release);

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
	lock_acquire(&lock);
	known = let_go_locked(table_find(&tables[kind], handle), kind, handle, ret_release);
	lock_release(&lock);
	if (!known)
		account_end();
	return known;
}

void quota_holding_unref_end(struct holding_release *release)
{
	lock_acquire(&lock);
	if (!release->ended)
		end_locked(release);
	lock_release(&lock);
}

/* Other processes or descriptors may keep exported memory, and its charge. */
void quota_holding_unref_commit(struct holding_release *release)
{
	uint64_t bytes = release->bytes;

	lock_acquire(&lock);
	if (!release->ended)
		end_locked(release);
	lock_release(&lock);
	if (release->last && release->kind == HOLDING_PHYSICAL)
		bytes -= exports_end(quota_holding_number(release->serial), bytes, bytes);
	lock_acquire(&lock);
	if (release->last)
		refund_locked(release->kind, release->device, release->context, release->shared,
			      bytes);
	lock_release(&lock);
	account_end();
}

void quota_holding_unref_undo(struct holding_release *release)
{
	struct table *table;
	struct entry *entry;

	lock_acquire(&lock);
	entry = entry_of_locked(release, &table);
	if (entry)
		entry->pending--;
	lock_release(&lock);
	account_end();
}

/* -- mappings ---------------------------------------------------------------------------------- */

/* Begins to release the mapping's reference. False: its memory is not known. */
static bool unmap_locked(const struct entry *mapping, struct holding_release *ret_release)
{
	if (!let_go_of_locked(mapping, ret_release))
		return false;
	ret_release->address = mapping->key;
	ret_release->mapping = mapping->serial;
	return true;
}

bool quota_mapped(uint64_t address, uint64_t size_bytes, const struct holding_reference *reference,
		  struct holding_release *ret_before)
{
	struct entry *mapping;
	bool before = false;

	account_begin();
	lock_acquire(&lock);
	mapping = table_find(&mappings, address);
	if (mapping && unmap_locked(mapping, ret_before)) {
		before = true;
		end_locked(ret_before);
		mapping = NULL;
	}
	if (!mapping)
		mapping = table_add(&mappings, address);
	if (mapping) {
		mapping->handle = reference->handle;
		mapping->memory_serial = reference->serial;
		mapping->size_bytes = size_bytes;
		mapping->serial = ++serials;
	}
	keep_locked(reference);
	lock_release(&lock);
	if (!before)
		account_end();
	return before;
}

/* A walk over the mappings that begin in a range. */
struct mapping_walk {
	uint64_t address, end;
	struct holding_release *releases; /* filled in; NULL: the mappings are only counted */
	size_t most, count;
};

/* Returns whether the mapping is to be removed, as its memory is not known. */
static bool walk_to(void *arg, const struct entry *mapping)
{
	struct mapping_walk *walk = arg;

	if (mapping->key < walk->address || mapping->key >= walk->end || walk->count == walk->most)
		return false;
	if (walk->releases) {
		if (!unmap_locked(mapping, &walk->releases[walk->count]))
			return true;
		account_begin();
	}
	walk->count++;
	return false;
}

static uint64_t length_of(const struct entry *mapping)
{
	return mapping && mapping->size_bytes ? mapping->size_bytes : GRANULE_BYTES;
}

static void walk_granules_locked(struct mapping_walk *walk)
{
	uint64_t left = walk->end - walk->address, length = 0;

	for (uint64_t at = walk->address; left && walk->count < walk->most; at += length) {
		struct entry *mapping = table_find(&mappings, at);

		length = length_of(mapping);
		left -= length < left ? length : left;
		if (mapping && walk_to(walk, mapping))
			table_remove(&mappings, mapping);
	}
}

/* The range may be any that an application thinks of. Where it has more granules than the table has
 * places, the walk is one pass over the table, however many mappings there are. */
static size_t walk(struct mapping_walk *walk)
{
	lock_acquire(&lock);
	if (walk->address >= walk->end || !mappings.count)
		walk->count = 0;
	else if ((walk->end - walk->address) / GRANULE_BYTES < mappings.capacity)
		walk_granules_locked(walk);
	else
		table_remove_if(&mappings, walk_to, walk);
	lock_release(&lock);
	return walk->count;
}

size_t quota_mappings(uint64_t address, uint64_t end)
{
	return walk(&(struct mapping_walk){address, end, NULL, SIZE_MAX, 0});
}

size_t quota_unmapping(uint64_t address, uint64_t end, struct holding_release *ret_releases,
		       size_t most)
{
	return walk(&(struct mapping_walk){address, end, ret_releases, most, 0});
}

/* Looks for the mapping in which an address lies. */
struct mapping_search {
	uint64_t address, handle;
	uint32_t serial; /* of the memory */
};

static bool search(void *arg, const struct entry *mapping)
{
	struct mapping_search *search = arg;

	if (search->address - mapping->key < length_of(mapping))
		*search = (struct mapping_search){search->address, mapping->handle,
						  mapping->memory_serial};
	return false;
}

bool quota_reference_begin_mapped(uint64_t address, struct holding_reference *ret)
{
	struct mapping_search looked = {address, 0, 0};
	const struct entry *entry;
	bool known = false;

	lock_acquire(&lock);
	if (mappings.count)
		table_remove_if(&mappings, search, &looked);
	entry = looked.handle ? table_find(&tables[HOLDING_PHYSICAL], looked.handle) : NULL;
	if (entry && entry->serial == looked.serial)
		known = refer_locked(HOLDING_PHYSICAL, looked.handle, ret);
	lock_release(&lock);
	return known;
}

/* -- bindings ---------------------------------------------------------------------------------- */

bool quota_bound(uint64_t place, uint64_t owner, const struct holding_reference *reference,
		 struct holding_release *ret_before)
{
	struct entry *binding;
	bool before = false;

	account_begin();
	lock_acquire(&lock);
	binding = table_find(&bindings, place);
	if (binding)
		before = let_go_of_locked(binding, ret_before);
	else
		binding = table_add(&bindings, place);
	if (binding) {
		binding->handle = reference->handle;
		binding->memory_serial = reference->serial;
		binding->owner = owner;
	}
	keep_locked(reference);
	lock_release(&lock);
	if (!before)
		account_end();
	return before;
}

bool quota_unbound(uint64_t place, struct holding_release *ret_release)
{
	struct entry *binding;
	bool known = false;

	account_begin();
	lock_acquire(&lock);
	binding = table_find(&bindings, place);
	if (binding) {
		known = let_go_of_locked(binding, ret_release);
		table_remove(&bindings, binding);
	}
	lock_release(&lock);
	if (!known)
		account_end();
	return known;
}

/* The bindings to remove, and the references among them that are the last to their memory. */
struct unbinding {
	uint64_t owner, context; /* the one that is not 0 */
	struct holding_release *releases;
	size_t most, count;
};

static bool is_unbound(const struct unbinding *unbinding, const struct entry *binding)
{
	const struct entry *array;

	if (unbinding->owner)
		return binding->owner == unbinding->owner;
	array = table_find(&tables[HOLDING_ARRAY], binding->owner);
	return array && array->context == unbinding->context;
}

static bool unbind(void *arg, const struct entry *binding)
{
	struct unbinding *unbinding = arg;
	struct holding_release *release = &unbinding->releases[unbinding->count];

	if (unbinding->count == unbinding->most || !is_unbound(unbinding, binding))
		return false;
	if (!let_go_of_locked(binding, release))
		return true;
	end_locked(release);
	if (release->last) {
		account_begin();
		unbinding->count++;
	}
	return true;
}

static size_t unbind_all(struct unbinding *unbinding)
{
	lock_acquire(&lock);
	if (bindings.count)
		table_remove_if(&bindings, unbind, unbinding);
	lock_release(&lock);
	return unbinding->count;
}

size_t quota_unbind_owner(uint64_t owner, struct holding_release *ret_releases, size_t most)
{
	struct unbinding unbinding = {owner, 0, ret_releases, most, 0};

	return unbind_all(&unbinding);
}

size_t quota_unbind_context(uint64_t context, struct holding_release *ret_releases, size_t most)
{
	struct unbinding unbinding = {0, context, ret_releases, most, 0};

	return unbind_all(&unbinding);
}

static bool is_of_owner(void *arg, const struct entry *binding)
{
	return binding->owner == *(const uint64_t *)arg;
}

void quota_unbind_never(uint64_t owner)
{
	lock_acquire(&lock);
	if (bindings.count)
		table_remove_if(&bindings, is_of_owner, &owner);
	lock_release(&lock);
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

	lock_acquire(&lock);
	table_remove_if(&tables[HOLDING_ARRAY], sweep_entry, &arrays);
	table_remove_if(&tables[HOLDING_IMPORT], sweep_entry, &imports);
	table_remove_if(&replaced[HOLDING_ARRAY], sweep_entry, &arrays);
	table_remove_if(&replaced[HOLDING_IMPORT], sweep_entry, &imports);
	lock_release(&lock);
}
