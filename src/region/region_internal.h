/*
 * What the files of src/region/ share with each other and nobody else.
 *
 *     open.c     a path becomes a struct region, and back; what may be wrong with a file
 *     setup.c    a setup is written into a region: new, reset or appended to
 *     orphan.c   whether somebody uses what was at the path before
 *     watch.c    whether the file is still the region that was opened
 *     lock.c     own.lock, who holds it, and what happens when the holder dies
 *     life.c     who lives, who is dying, who is dead
 *     guess.c    whose charge for contexts is a guess
 *     slot.c     claims, onlookers, reaping; totals computed anew
 *     exit.c     a slot is emptied while its process exits
 *     ledger.c   charges and refunds
 *     share.c    memory that several slots have open: export, import, and the end of a slot
 *     share_table.c  the entries for such memory, and moves of its charge between slots
 *     share_kept.c   charges for such memory that only file descriptors keep
 *     descriptor.c  file descriptors that keep memory: which memory, and whether any is left
 *     check.c    whether everything that always holds does hold
 *     steps.h    where a test may kill us
 *
 * Memory orders. What the lock guards needs no order of its own: the lock's acquire and release do
 * it. Readers without the lock must see true values only, so every shared field is stored whole:
 * REGION_STORE. Where a later store must never be seen, or survive a kill, without the ones before
 * it, it is REGION_PUBLISH, a release; it pairs with REGION_SEE where we read without the lock.
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

/* How a region's file is opened: it never hangs, whatever it is, and what is written goes to the
 * end, wherever a look at it left the offset. */
#define REGION_OPEN_FLAGS(writable) \
	(((writable) ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_APPEND)

/* Whether region->fd still is the region: applications close descriptors that are not theirs, and
 * open others with the same number. */
bool region_fd_is_ours(const struct region *region);
/* The same, after the file was opened again if need be. */
bool region_has_fd(struct region *region);

/* 0, or the region is lost: -ESTALE or -EUCLEAN. Before anything in the mapping is touched. */
int region_watch_now(struct region *region);
static inline int region_watch(struct region *region)
{
	int lost = REGION_LOAD(region->lost);

	if (lost || clock_coarse_ns() < REGION_LOAD(region->watch_next_ns))
		return lost;
	return region_watch_now(region);
}

/* Whether the mapping has what it had when it was opened. If it has not: returns error. */
bool region_is_as_opened(const struct region *region);
int region_lose(struct region *region, int error);

/* -- orphan.c -------------------------------------------------------------------------------- */

/* Before a region is made: 0, or -EBUSY with a fault while living processes use what was there
 * before. Whether one was deleted is asked before the init byte is taken, as that may take seconds;
 * whether this file was emptied, under it. */
int region_check_deleted(const char *path, struct fault *fault);
int region_check_emptied(const char *path, int fd, struct fault *fault);

/* -- lock.c ----------------------------------------------------------------------------------- */

/* What the holder of the slot's byte stores in own.lock: nobody else ever stored, or will store,
 * the same. */
uint32_t region_owner_word(const struct vgpu_region_file *file, unsigned slot);

/* Takes own.lock as region->owner, which must not be 0. Returns 0; -ETIMEDOUT when the living kept
 * it for REGION_LOCK_PATIENCE_NS; or -EUCLEAN when what is there is no region any more. A dead
 * holder's changes have been repaired by then. */
int region_lock(struct region *region);
/* The same with another patience. */
int region_lock_within(struct region *region, uint64_t patience_ns);
void region_unlock(struct region *region);
/* What region_lock or region_enter could not do, in words. Returns error. */
int region_cannot_lock(const struct region *region, int error, struct fault *fault);

/* Whether the holder that a lock word names may live. The word is not 0. */
bool region_holder_lives(struct region *region, uint32_t word);

/* -- life.c ----------------------------------------------------------------------------------- */

/* How far a process that does not live is with its ending. */
enum region_end {
	REGION_END_OVER,    /* the device has back what it held, if anything */
	REGION_END_SEEN,    /* it is dying */
	REGION_END_UNKNOWN, /* it cannot be seen, and was found dead just now: taken for dying */
};

/* Of a slot that is not free and whose process is not alive. */
enum region_end region_slot_end(struct region *region, unsigned slot);
/* The pid of the slot's process; an emptied slot has it elsewhere. */
int region_slot_pid(const struct vgpu_region_file *file, unsigned slot);
/* Whether the slot, which is not free, can be cleared. */
bool region_slot_is_over(struct region *region, unsigned slot);
/* Whether some slot's process is alive: for those who have no slot themselves. */
bool region_anybody_lives(struct region *region);
/* Whether some slot is seen dying. */
bool region_any_ending(struct region *region);
/* The inode of our pid namespace, 0 where that is not to be had. */
uint64_t region_pid_namespace(void);

/* -- slot.c ----------------------------------------------------------------------------------- */

/* The lock for anybody who may write: an onlooker, who has no slot, borrows the byte of one for as
 * long. Returns 0, or what region_lock, or taking a byte, says; -EROFS where we may only read. */
int region_enter(struct region *region);
void region_leave(struct region *region);

/* Whether nothing of the slot counts: it is nobody's. */
bool region_slot_is_free(const struct vgpu_region_file *file, unsigned slot);
/* What counts of the slot, which is not free, for the device. */
uint64_t region_slot_bytes(const struct vgpu_region_file *file, unsigned slot, unsigned device);

/* How many slots to look at: the high-water mark, within bounds whatever the file says. */
unsigned region_slots_in_use(const struct vgpu_region_file *file);
/* The next slot after that one, -1 for the first, that is not free; -1 when there is none. */
int region_next_slot(const struct vgpu_region_file *file, int slot);
/* The same for devices. */
unsigned region_devices_in_use(const struct vgpu_region_file *file);

/* Of a slot whose status was just stored, sequentially consistent: where the slice is paused, so is
 * its process. */
void region_pause_newcomer(struct vgpu_region_file *file, unsigned slot);

/* Empties a slot, after what it shared went to others: its status first, so that no reader takes
 * half a slot for a process. The totals are then out of date. */
void region_clear_slot_locked(struct region *region, unsigned slot);
/* Clears the slots that are over; returns how many there were. The totals are then out of date. */
int region_clear_dead_locked(struct region *region);
/* Every total from the classes below it. */
void region_compute_totals_locked(struct vgpu_region_file *file);

/* -- exit.c ----------------------------------------------------------------------------------- */

/* Whether the slot's process has begun to exit: exiting_data and exiting_other count, and nothing
 * else in it does. */
static inline bool region_slot_is_exiting(const struct vgpu_region_file *file, unsigned slot)
{
	return REGION_SEE(file->own.slots[slot].exiting_pid) != 0; /* pairs with exit.c */
}
/* Sets one of the classes of our slot, which is emptied; own.device[].used follows. */
void region_set_exiting_locked(struct region *region, unsigned device, enum region_class class,
			       uint64_t bytes);
/* A class of our slot, which is emptied. */
uint64_t region_exiting_class(const struct region *region, unsigned device,
			      enum region_class class);
/* Empties the slots of which a dead holder of the lock had emptied a part. */
void region_finish_exits_locked(struct vgpu_region_file *file);

/* The sum of the classes. */
uint64_t region_sum_classes(const struct vgpu_hami_usage *usage);

/* from - bytes, or 0 where that is less. */
static inline uint64_t region_less(uint64_t from, uint64_t bytes)
{
	return from > bytes ? from - bytes : 0;
}

/* -- check.c ---------------------------------------------------------------------------------- */

/* Whether everything holds that region_check looks for, and that no caller can break. The caller
 * has the lock, so nothing is half done. */
bool region_is_valid_locked(const struct region *region);

/* -- ledger.c --------------------------------------------------------------------------------- */

/* The lock, to change our slot: late refunds are made first. What region_lock returns. */
int region_lock_slot(struct region *region);
/* Makes late refunds. */
void region_settle_late_locked(struct region *region);
/* Raises a class of our slot, with all totals, whatever the limit; and lowers it. */
void region_charge_locked(struct region *region, unsigned device, enum region_class class,
			  uint64_t bytes);
void region_refund_locked(struct region *region, unsigned device, enum region_class class,
			  uint64_t bytes);

/* -- share.c, share_table.c, share_kept.c ------------------------------------------------------ */

/* The slot's process is over: what it had charged and others import goes to one of them each, its
 * imports vanish. The totals are then out of date. Can be done over, if it was left half done. */
void region_share_clear_locked(struct region *region, unsigned slot);
/* Completes the move that a dead holder of the lock had begun. */
void region_share_repair_locked(struct vgpu_region_file *file);
/* Empties the table: nobody lives. */
void region_share_reset_locked(struct vgpu_region_file *file);

/* How many entries to look at: the high-water mark, within bounds whatever the file says. */
unsigned region_shares_in_use(const struct vgpu_region_file *file);
/* Whether the entry says where bytes are charged, with a slot and a device within bounds. */
bool region_share_is_charge(const struct vgpu_region_share *share);
/* The entry with the charge that an import belongs to, or NULL where it names none. */
struct vgpu_region_share *region_share_charge_of(struct vgpu_region_file *file,
						 const struct vgpu_region_share *import);

/* Whether something in the table is surely kept by a descriptor. */
bool region_share_any_kept(struct region *region);
/* Whether clearing the slot takes a slot to charge for what descriptors keep of its memory. */
bool region_share_needs_keeper(struct region *region, unsigned slot);

/* -- setup.c ---------------------------------------------------------------------------------- */

/* own.magic while a region is made: "REGION00". With it and without HAMi's magic, a file is one
 * that somebody died over, and may be made again. */
#define REGION_MAKING_MAGIC 0x30304e4f49474552ull

/* 0, or -EINVAL with a fault: too many devices, one twice, a uuid that is none. */
int region_check_setup(const struct region_setup *setup, struct fault *fault);

/* What own.path has for a path; 0 for one that is relative. */
uint64_t region_path_hash(const char *path);
/* Turns zeros into a region of that setup, at that path. The caller holds the byte
 * VGPU_INIT_LOCK_OFFSET. */
void region_make(struct vgpu_region_file *file, const char *path, const struct region_setup *setup);
/* Gives the setup to a made region, under that byte: wholly when nobody living is in it, else the
 * devices that it lacks. */
int region_adopt(const char *path, struct region *region, const struct region_setup *setup,
		 struct fault *fault);
