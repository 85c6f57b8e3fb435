/*
 * Mappings of physical memory (HOLDING_PHYSICAL of holding.h). Each mapping has a reference to its
 * memory. Thread-safe: the lock of holdings, before the region's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "holding.h"

/* Begins a reference, as quota_reference_begin does, to the memory that is mapped where the address
 * lies. False: no known memory is mapped there. */
bool quota_reference_begin_mapped(uint64_t address, struct holding_reference *ret);

/* Whether the mapping by which the reference was found has ended since. */
bool quota_mapping_is_stale(const struct holding_reference *reference);

/* The memory is mapped at the address. The mapping has the reference from now on. True: the table
 * had another mapping there, whose end the library did not see. Its reference has ended, and the
 * caller commits *ret_before. */
bool quota_mapped(uint64_t address, uint64_t size_bytes, const struct holding_reference *reference,
		  struct holding_release *ret_before);

/* How many mappings are known in a range. */
size_t quota_mappings(uint64_t address, uint64_t end);

/* A range with any number of mappings is about to be unmapped. This begins to release the
 * references of up to `most` known mappings, and returns how many. Other threads may begin with the
 * same mappings. A mapping's reference ends with the first quota_holding_unref_end. */
size_t quota_unmapping(uint64_t address, uint64_t end, struct holding_release *ret_releases,
		       size_t most);
