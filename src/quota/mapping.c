/*
 * A table maps the address of each known mapping to a physical handle. The entry has the serial of
 * the memory and the size. A serial of its own distinguishes the mapping from later mappings at the
 * same address. holding_lock protects the table.
 *
 * A mapping stays in its table until the driver has unmapped it, too. Several calls may be about to
 * unmap it, of which the driver refuses some. The one that removes the mapping ends its reference.
 *
 * Always: each entry has one reference to its memory. Where there is no memory for the entry, the
 * reference of the mapping stays for good, and the memory stays charged.
 */
#include "mapping.h"

#include "account.h"
#include "blocks.h"
#include "holding_internal.h"

static struct table mappings; /* under `holding_lock` */

void mappings_forked(void)
{
	table_clear(&mappings);
}

bool mapping_remove_locked(const struct holding_release *release)
{
	struct entry *mapping = table_find(&mappings, release->address);

	if (!mapping || mapping->serial != release->mapping)
		return false;
	table_remove(&mappings, mapping);
	return true;
}

/* Begins to release the mapping's reference. False: its memory is not known. */
static bool unmap_locked(const struct entry *mapping, struct holding_release *ret_release)
{
	if (!holding_let_go_locked(mapping, ret_release))
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
	lock_acquire(&holding_lock);
	mapping = table_find(&mappings, address);
	if (mapping && unmap_locked(mapping, ret_before)) {
		before = true;
		holding_end_locked(ret_before);
		mapping = NULL;
	}
	if (!mapping)
		mapping = table_add(&mappings, address);
	if (mapping) {
		mapping->handle = reference->handle;
		mapping->memory_serial = reference->serial;
		mapping->size_bytes = size_bytes;
		mapping->serial = holding_new_serial_locked();
	}
	holding_keep_locked(reference);
	lock_release(&holding_lock);
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
	lock_acquire(&holding_lock);
	if (walk->address >= walk->end || !mappings.count)
		walk->count = 0;
	else if ((walk->end - walk->address) / GRANULE_BYTES < mappings.capacity)
		walk_granules_locked(walk);
	else
		table_remove_if(&mappings, walk_to, walk);
	lock_release(&holding_lock);
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
	uint64_t address;
	struct entry found; /* its key is 0 if there is none */
};

static bool search(void *arg, const struct entry *mapping)
{
	struct mapping_search *search = arg;

	if (search->address - mapping->key < length_of(mapping))
		search->found = *mapping;
	return false;
}

bool quota_reference_begin_mapped(uint64_t address, struct holding_reference *ret)
{
	struct mapping_search looked = {.address = address};
	const struct entry *mapping = &looked.found, *entry = NULL;
	bool known = false;

	lock_acquire(&holding_lock);
	if (mappings.count)
		table_remove_if(&mappings, search, &looked);
	if (mapping->key)
		entry = holding_find_locked(HOLDING_PHYSICAL, mapping->handle);
	if (entry && entry->serial == mapping->memory_serial)
		known = holding_refer_locked(HOLDING_PHYSICAL, mapping->handle, ret);
	if (known) {
		ret->address = mapping->key;
		ret->mapping = mapping->serial;
	}
	lock_release(&holding_lock);
	return known;
}

bool quota_mapping_is_stale(const struct holding_reference *reference)
{
	const struct entry *mapping;
	bool stale;

	if (!reference->mapping)
		return false;
	lock_acquire(&holding_lock);
	mapping = table_find(&mappings, reference->address);
	stale = !mapping || mapping->serial != reference->mapping;
	lock_release(&holding_lock);
	return stale;
}
