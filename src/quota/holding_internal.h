/*
 * Inside quota/: what holding.c, mapping.c and binding.c share. The caller of each function holds
 * holding_lock, and holds it for as long as it uses an entry that a function has returned.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "holding.h"
#include "lock.h"
#include "table.h"

/* It protects the tables of handles, mappings and bindings. A thread takes it before the lock of
 * the region, and never calls the driver with it. */
extern struct lock holding_lock;

/* -- holding.c --------------------------------------------------------------------------------- */

/* A serial that no other memory, mapping or binding has, and the last one that was given. */
uint32_t holding_new_serial_locked(void);
uint32_t holding_newest_serial_locked(void);

/* The entry of the memory that has the handle now. NULL: the handle is not known. */
const struct entry *holding_find_locked(enum holding_kind kind, uint64_t handle);

/* Begins a reference to the memory that has the handle now. False: the handle is not known, and
 * *ret has no serial. */
bool holding_refer_locked(enum holding_kind kind, uint64_t handle, struct holding_reference *ret);

/* The driver has made the reference, which is counted already. */
void holding_keep_locked(const struct holding_reference *reference);

/* Begins to release the reference that a mapping or a binding has. The caller has called
 * account_begin for this release. False: the memory is not known, and nothing begins. */
bool holding_let_go_locked(const struct entry *referrer, struct holding_release *ret_release);

/* The driver has dropped the reference of the release, which has not ended yet. A mapping's
 * reference ends together with the mapping. Sets `last`, `ended`, `replaced` and `exported`. The
 * charge stays until quota_holding_unref_commit. */
void holding_end_locked(struct holding_release *release);

/* -- mapping.c --------------------------------------------------------------------------------- */

/* Removes the mapping of the release. False: another call has, and has ended its reference. */
bool mapping_remove_locked(const struct holding_release *release);

void mappings_forked(void); /* in a forked child */

/* -- binding.c --------------------------------------------------------------------------------- */

void bindings_forked(void); /* in a forked child */
