/*
 * Declarations that the files of src/region/ share; no other component includes this header.
 *
 *     open.c          a path becomes a struct region, and back; errors of a file
 *     setup.c         a setup is written into a region: new, reset or appended to
 *     orphan.c        whether processes use an earlier region of the path
 *     watch.c         whether the file is still the region that was opened
 *     lock.c          own.lock, its holder, and what happens when the holder dies
 *     life.c          which processes live, are dying, or are dead
 *     guess.c         charges for contexts that are guesses
 *     slot.c          claims, onlookers, reaping; totals are computed from the slots
 *     exit.c          a slot is emptied while its process exits
 *     ledger.c        charges and refunds
 *     share.c         memory that several slots have open: export, import, and the end of a slot
 *     share_table.c   the entries for such memory, and moves of its charge between slots
 *     share_kept.c    charges for such memory that only file descriptors keep
 *     descriptor.c    file descriptors that keep memory: which memory, and whether any is left
 *     check.c         checks the invariants
 *     steps.h         the moments at which a test may kill the process
 *
 * Memory orders. Fields that the lock guards need no order of their own: the lock's acquire and
 * release order them. Readers without the lock must see true values only, so every shared field is
 * stored whole: REGION_STORE. Some stores must never be seen, or survive a kill, without the stores
 * before them. They use REGION_PUBLISH, a release, which pairs with REGION_SEE where fields are
 * read without the lock.
 */
#pragma once

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"
#include "region.h"
#include "steps.h"

#define REGION_LOAD(field)           __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define REGION_STORE(field, value)   __atomic_store_n(&(field), value, __ATOMIC_RELAXED)
#define REGION_SEE(field)            __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define REGION_PUBLISH(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELEASE)

/* -- watch.c --------------------------------------------------------------------------------- */

/* How a region's file is opened: open(2) never blocks, whatever the file is, and writes go to the
 * end, wherever the offset is. */
#define REGION_OPEN_FLAGS(writable) \
	(((writable) ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_APPEND)

/* Whether region->fd still is the region: applications close descriptors that are not theirs, and
 * open others with the same number. */
bool region_fd_is_ours(const struct region *region);
/* As region_fd_is_ours, after the file was opened again if necessary. */
bool region_has_fd(struct region *region);

/* 0, or the region is lost: -ESTALE or -EUCLEAN. To be called before the mapping is touched. */
int region_watch_now(struct region *region);
static inline int region_watch(struct region *region)
{
	int lost = REGION_LOAD(region->lost);

	if (lost || clock_coarse_ns() < REGION_LOAD(region->watch_next_ns))
		return lost;
	return region_watch_now(region);
}

/* Whether the mapping still has the region that was opened. */
bool region_is_as_opened(const struct region *region);
/* Marks the region as lost because of that error, and returns the error. */
int region_mark_lost(struct region *region, int error);

/* -- orphan.c -------------------------------------------------------------------------------- */

/* Before a region is made: 0, or -EBUSY with a fault while living processes use an earlier region
 * of that path. region_check_deleted is called before the init byte is taken, because it may take
 * seconds. region_check_emptied is called under the byte. */
int region_check_deleted(const char *path, struct fault *fault);
int region_check_emptied(const char *path, int fd, struct fault *fault);

/* -- lock.c ----------------------------------------------------------------------------------- */

/* The word that the holder of the slot's byte stores in own.lock. No other process has stored the
 * same word, or will. */
uint32_t region_owner_word(const struct vgpu_region_file *file, unsigned slot);

/* Takes own.lock as region->owner, which must not be 0. Returns 0; -ETIMEDOUT, if living processes
 * kept the lock for REGION_LOCK_PATIENCE_NS; or -EUCLEAN, if the file is not the region any more.
 * After 0, the changes of a dead holder are repaired. */
int region_lock(struct region *region);
/* As region_lock, with another patience. */
int region_lock_within(struct region *region, uint64_t patience_ns);
void region_unlock(struct region *region);
/* Fills in the fault for an error of region_lock or region_lock_any. Returns error. */
int region_cannot_lock(const struct region *region, int error, struct fault *fault);

/* Whether the holder that a lock word names may live. The word is not 0. */
bool region_holder_lives(struct region *region, uint32_t word);

/* -- life.c ----------------------------------------------------------------------------------- */

/* The state of a process that does not live. */
enum region_end {
	REGION_END_OVER,    /* the device has its memory back */
	REGION_END_SEEN,    /* it is dying */
	REGION_END_UNKNOWN, /* /proc does not say, and it was found dead recently: it counts as
			       dying */
};

/* For a slot that is not free and whose process does not live. */
enum region_end region_slot_end(struct region *region, unsigned slot);
/* The pid of the slot's process, also of one that is exiting. */
int region_slot_pid(const struct vgpu_region_file *file, unsigned slot);
/* Whether the slot, which is not free, can be cleared. */
bool region_slot_is_over(struct region *region, unsigned slot);
/* Whether any slot's process lives: for a process without a slot. */
bool region_anybody_lives(struct region *region);
/* Whether any slot's process is seen to be dying. */
bool region_any_ending(struct region *region);
/* The inode of our pid namespace; 0: it cannot be found out. */
uint64_t region_pid_namespace(void);

/* -- slot.c ----------------------------------------------------------------------------------- */

/* Takes the lock for any process that may write. An onlooker borrows the byte of a slot for that
 * time. Returns 0; an error of region_lock or of borrowing a byte; or -EROFS, if we may only read.
 */
int region_lock_any(struct region *region);
void region_unlock_any(struct region *region);

/* Whether the slot is free: no process has it, and nothing in it counts. */
bool region_slot_is_free(const struct vgpu_region_file *file, unsigned slot);
/* The bytes of the device that count in the slot, which is not free. */
uint64_t region_slot_bytes(const struct vgpu_region_file *file, unsigned slot, unsigned device);

/* How many slots to look at: the high-water mark, within bounds whatever the file says. */
unsigned region_slots_in_use(const struct vgpu_region_file *file);
/* The next slot after that one, -1 for the first, that is not free; -1 when there is none. */
int region_next_slot(const struct vgpu_region_file *file, int slot);
/* The number of devices, within bounds whatever the file says. */
unsigned region_devices_in_use(const struct vgpu_region_file *file);

/* After the status of a new slot was stored (sequentially consistent): if the slice is paused, its
 * process is paused, too. */
void region_pause_newcomer(struct vgpu_region_file *file, unsigned slot);

/* Empties a slot, after what it shared went to others: its status first, so that no reader takes
 * half a slot for a process. The totals are then out of date. */
void region_clear_slot_locked(struct region *region, unsigned slot);
/* Clears the slots that are over; returns how many there were. The totals are then out of date. */
int region_clear_dead_locked(struct region *region);
/* Computes every total from the classes. */
void region_compute_totals_locked(struct vgpu_region_file *file);

/* -- exit.c ----------------------------------------------------------------------------------- */

/* Whether the slot's process has begun to exit: only exiting_data and exiting_other count then. */
static inline bool region_slot_is_exiting(const struct vgpu_region_file *file, unsigned slot)
{
	return REGION_SEE(file->own.slots[slot].exiting_pid) != 0; /* pairs with exit.c */
}
/* Sets a class of our slot, which was emptied, and own.device[].used accordingly. */
void region_set_exiting_locked(struct region *region, unsigned device, enum region_class class,
			       uint64_t bytes);
/* The bytes of a class of our slot, which was emptied. */
uint64_t region_exiting_class(const struct region *region, unsigned device,
			      enum region_class class);
/* Empties the slots that a dead holder of the lock had begun to empty. */
void region_finish_exits_locked(struct vgpu_region_file *file);

/* The sum of the classes. */
uint64_t region_sum_classes(const struct vgpu_hami_usage *usage);

/* from - bytes, or 0 if `bytes` is more. */
static inline uint64_t region_less(uint64_t from, uint64_t bytes)
{
	return from > bytes ? from - bytes : 0;
}

/* -- check.c ---------------------------------------------------------------------------------- */

/* Whether all invariants of region_check hold that a caller cannot break by its figures. The caller
 * has the lock, so no change is half done. */
bool region_is_valid_locked(const struct region *region);

/* -- ledger.c --------------------------------------------------------------------------------- */

/* Takes the lock, to change our slot, and makes late changes. Returns as region_lock does. */
int region_lock_slot(struct region *region);
/* Makes late refunds and charges, and ends late shares. */
void region_settle_late_locked(struct region *region);
void region_share_settle_late_locked(struct region *region); /* of these, the shares */
/* Raise and lower a class of our slot, with all totals, whatever the limit. */
void region_charge_locked(struct region *region, unsigned device, enum region_class class,
			  uint64_t bytes);
void region_refund_locked(struct region *region, unsigned device, enum region_class class,
			  uint64_t bytes);

/* -- share.c, share_table.c, share_kept.c ------------------------------------------------------ */

/* The slot's process is over: each of its charges that others import moves to one of them, and its
 * imports are freed. The totals are out of date after this. It can be repeated. */
void region_share_clear_locked(struct region *region, unsigned slot);
/* Completes the move that a dead holder of the lock had begun. */
void region_share_repair_locked(struct vgpu_region_file *file);
/* Empties the table, as no process lives in the region. */
void region_share_reset_locked(struct vgpu_region_file *file);

/* How many entries to look at: the high-water mark, within bounds whatever the file says. */
unsigned region_shares_in_use(const struct vgpu_region_file *file);
/* Whether the entry says where bytes are charged, with a slot and a device within bounds. */
bool region_share_is_charge(const struct vgpu_region_share *share);
/* The charge that an import belongs to, or NULL if it names none. */
struct vgpu_region_share *region_share_charge_of(struct vgpu_region_file *file,
						 const struct vgpu_region_share *import);

/* Whether a descriptor certainly keeps a charge of the table. */
bool region_share_any_kept(struct region *region);
/* Whether descriptors keep memory of the slot, so clearing it needs another slot to charge. */
bool region_share_needs_keeper(struct region *region, unsigned slot);

/* -- setup.c ---------------------------------------------------------------------------------- */

/* own.magic while a region is made: "REGION00". A file with it and without HAMi's magic may be made
 * again, as its maker has died. */
#define REGION_MAKING_MAGIC 0x30304e4f49474552ull

/* 0; or -EINVAL with a fault: there are too many devices, one occurs twice, or a uuid is not valid.
 */
int region_check_setup(const struct region_setup *setup, struct fault *fault);

/* The value of own.path for a path; 0 for a relative path. */
uint64_t region_path_hash(const char *path);
/* Turns zeros into a region of that setup, at that path. The caller holds the byte
 * VGPU_INIT_LOCK_OFFSET. */
void region_make(struct vgpu_region_file *file, const char *path, const struct region_setup *setup);
/* Writes the setup into an existing region, under that byte. All of it is written if no process
 * lives in the region, and otherwise the devices that the region lacks. */
int region_adopt(const char *path, struct region *region, const struct region_setup *setup,
		 struct fault *fault);
