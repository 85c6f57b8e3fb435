/*
 * Bindings of physical memory (HOLDING_PHYSICAL of holding.h) to multicast objects and sparse
 * arrays. Each binding has a reference to its memory. Thread-safe: the lock of holdings, before the
 * region's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "holding.h"

/*
 * The reference belongs from now on to an owner: a multicast object or an array. `place` is a hash
 * of the position in the owner. The reference ends with its owner. True: the binding that was there
 * before is to be released, as after quota_holding_unref_begin. Where there is no memory for the
 * record, the reference stays for good.
 */
bool quota_bound(uint64_t place, uint64_t owner, const struct holding_reference *reference,
		 struct holding_release *ret_before);

/* The serial of the newest binding. It is taken before the driver is asked to end bindings: another
 * thread may bind other memory at the same place before this one calls quota_unbound. */
uint32_t quota_newest_binding(void);

/* Removes the binding at the place, if it is not newer than that serial. True: its reference is to
 * be released, as after quota_holding_unref_begin. False: no known memory is bound there. */
bool quota_unbound(uint64_t place, uint32_t newest, struct holding_release *ret_release);

/* The owner is gone, or the context with all its arrays. This ends the references of its bindings.
 * It returns how many of them, up to `most`, were the last to their memory. The caller commits
 * these releases, and calls the function until it returns 0. */
size_t quota_unbind_owner(uint64_t owner, struct holding_release *ret_releases, size_t most);
size_t quota_unbind_context(uint64_t context, struct holding_release *ret_releases, size_t most);

/* The owner is gone from this process and may be in others: its references stay for good. */
void quota_unbind_never(uint64_t owner);
