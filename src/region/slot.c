/*
 * Slots: which processes have them, and how the slots of dead processes are cleared.
 *
 * How it works. A process owns a slot as long as its open file has the slot's byte locked
 * (VGPU_SLOT_LOCK_OFFSET + slot). The kernel arbitrates: two processes cannot both get a byte. The
 * kernel unlocks the byte with the end of the open file, at the owner's death at the latest. A
 * process that claims a slot first locks the byte. Then it counts the claim (own.slots[].claims),
 * and takes the lock. It clears what a dead owner left, fills the slot in, and last stores a status
 * that is not 0. From that store on the slot counts. The slots of living processes are never moved
 * or shared.
 *
 * What always holds. Only the process that has the byte changes a status from 0, and only under the
 * lock. So a process that holds the lock and finds the byte of such a slot unlocked
 * has found a dead owner. A living owner would have the byte. A new process may lock the byte at
 * the next moment, but cannot store a status before the lock is released, and then clears the slot
 * itself. If the byte is locked, or the answer is an error, the owner may live and the slot is left
 * alone. The slot of a dying process is left alone, too (life.c).
 *
 * The races, one by one:
 *
 *     claimer has the byte, not the lock  the slot looks free, or its dead owner seems to live: the
 *                                         charges of that owner count until the claimer fills it in
 *     claimer dies there                  the byte is unlocked, and one claim more was counted
 *     two reapers                         the second finds under the lock that the slot is clear
 *     reaper and claimer of one slot      both clear it, one after the other
 *     owner closes while it is reaped     its byte goes last, after its status: at no moment is a
 *                                         status not 0 while the byte is unlocked
 *
 * An onlooker has no slot, but needs the lock to reap, reset or check, and must be found dead if it
 * dies with the lock. So it borrows a byte for that time, from the last slot down. It counts the
 * claim as an owner does, and stores no status.
 *
 * A process that exits normally leaves a slot of status 0 that still counts (exit.c). Its byte is
 * locked as long as the process lives, and all of the above applies to it.
 *
 * The lock protects status, usage, pids, shares and all totals. own.slots[].claims belongs to the
 * process that has the byte locked. If a process is killed on any line, its unfinished change is
 * invisible, without a status, or the process died with the lock. Then the next holder repairs the
 * region (lock.c).
 *
 * What it is not: a process table. pids are shown to people, and show how far a dead process is
 * with its end (life.c). They never decide which process lives.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "region_internal.h"
#include "sys.h"
#include "trace.h"

#define CLAIM_LOOKS 16 /* slots: 15 us, or 40 us with a thousand living processes */

#define INITIAL_PID_NAMESPACE 0xeffffffcu /* the inode of its /proc/self/ns/pid, by Linux's ABI */

unsigned region_slots_in_use(const struct vgpu_region_file *file)
{
	int32_t count = REGION_SEE(file->hami.slot_count); /* pairs with fill_slot_locked */

	return count < 0 ? 0 : count > VGPU_SLOTS_MAX ? VGPU_SLOTS_MAX : (unsigned)count;
}

bool region_slot_is_free(const struct vgpu_region_file *file, unsigned slot)
{
	return REGION_LOAD(file->hami.slots[slot].status) == VGPU_SLOT_FREE &&
	       !region_slot_is_exiting(file, slot);
}

uint64_t region_slot_bytes(const struct vgpu_region_file *file, unsigned slot, unsigned device)
{
	const struct vgpu_hami_usage *usage = &file->hami.slots[slot].used[device];

	if (region_slot_is_exiting(file, slot))
		return REGION_LOAD(usage->exiting_data) + REGION_LOAD(usage->exiting_other);
	return REGION_LOAD(usage->total);
}

int region_next_slot(const struct vgpu_region_file *file, int slot)
{
	int count = (int)region_slots_in_use(file);

	for (slot++; slot < count; slot++)
		if (!region_slot_is_free(file, (unsigned)slot))
			return slot;
	return -1;
}

unsigned region_devices_in_use(const struct vgpu_region_file *file)
{
	uint64_t count = REGION_SEE(file->hami.device_count); /* pairs with setup.c */

	return count > VGPU_DEVICES_MAX ? VGPU_DEVICES_MAX : (unsigned)count;
}

/* -- bytes ------------------------------------------------------------------------------------ */

static bool is_free(const struct region *region, unsigned slot)
{
	return region_slot_is_free(region->file, slot);
}

/* Locks the byte of a free slot or, unless free_only, of a slot that is over. Returns the slot. */
static int try_bytes(struct region *region, bool from_top, bool free_only)
{
	for (unsigned i = 0; i < VGPU_SLOTS_MAX; i++) {
		unsigned slot = from_top ? VGPU_SLOTS_MAX - 1 - i : i;
		int error;

		if (free_only && !is_free(region, slot))
			continue;
		error = sys_lock_byte(REGION_LOAD(region->fd), VGPU_SLOT_LOCK_OFFSET + slot);
		if (error == 0) {
			region_step(byte_locked);
			if (is_free(region, slot) ||
			    region_slot_end(region, slot) == REGION_END_OVER)
				return (int)slot;
			sys_unlock_byte(REGION_LOAD(region->fd), VGPU_SLOT_LOCK_OFFSET + slot);
		} else if (error != -EAGAIN) {
			return error;
		}
	}
	return -EUSERS;
}

/* Locks the byte of a slot, of a free one if possible, and makes our word for the lock from it.
 * Returns the slot. */
static int take_byte(struct region *region, bool from_top)
{
	uint64_t *claims;
	int slot;

	if (!region_has_fd(region))
		return -EBADF;
	slot = try_bytes(region, from_top, true);
	if (slot == -EUSERS)
		slot = try_bytes(region, from_top, false);
	if (slot < 0)
		return slot;
	claims = &region->file->own.slots[slot].claims;
	REGION_STORE(*claims, REGION_LOAD(*claims) + 1);
	region->owner = region_owner_word(region->file, (unsigned)slot);
	return slot;
}

static void give_byte(struct region *region, unsigned slot)
{
	region->owner = 0;
	sys_unlock_byte(REGION_LOAD(region->fd), VGPU_SLOT_LOCK_OFFSET + slot);
}

/* -- onlookers -------------------------------------------------------------------------------- */

static int borrow(struct region *region)
{
	int slot, error;

	lock_acquire(&region->onlooker); /* one byte for all our threads: one of them at a time */
	slot = take_byte(region, true);
	error = slot < 0 ? slot : 0;
	if (!error) {
		region_step(borrow_byte);
		region->borrowed = (unsigned)slot;
		error = region_lock(region);
		if (error)
			give_byte(region, region->borrowed);
	}
	if (error)
		lock_release(&region->onlooker);
	return error;
}

int region_lock_any(struct region *region)
{
	int error = region_watch(region);

	if (error)
		return error;
	if (!region->writable)
		return -EROFS;
	return region->slot >= 0 ? region_lock(region) : borrow(region);
}

void region_unlock_any(struct region *region)
{
	region_unlock(region);
	if (region->slot >= 0)
		return;
	region_step(borrow_over);
	give_byte(region, region->borrowed);
	lock_release(&region->onlooker);
}

/* -- slots ------------------------------------------------------------------------------------ */

void region_clear_slot_locked(struct region *region, unsigned slot)
{
	struct vgpu_hami_slot *dead = &region->file->hami.slots[slot];
	uint64_t *words = (uint64_t *)dead;
	const unsigned count = sizeof(*dead) / sizeof(*words);

	/* The status is cleared after this. If we die here, the next holder of the lock sees by it
	 * that the slot is to be cleared. */
	region_share_clear_locked(region, slot);
	REGION_STORE(dead->status, VGPU_SLOT_FREE);
	REGION_PUBLISH(region->file->own.slots[slot].exiting_pid, 0);
	region_step(clear_hidden);
	for (unsigned i = 0; i < count; i++) {
		/* Not memset, which may store by the byte; and a release, so that a reader who
		 * sees it and looks again sees the status. */
		REGION_PUBLISH(words[i], 0);
		if (i == count / 2)
			region_step(clear_half);
	}
	region_step(clear_done);
}

static void trace_cleared(const struct region *region, unsigned slot)
{
	uint64_t bytes = 0;

	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		bytes += region_slot_bytes(region->file, slot, device);
	trace_add_event(&(struct trace_event){
		.kind = TRACE_CLEARED,
		.device = -1,
		.a = slot,
		.b = region_slot_pid(region->file, slot),
		.c = (int64_t)bytes,
	});
}

/* Clears the slot of a process that is over. */
static void clear_dead_slot_locked(struct region *region, unsigned slot)
{
	if (trace_wants(TRACE_REGION))
		trace_cleared(region, slot);
	region_clear_slot_locked(region, slot);
}

/* A set of slots that are to be cleared. */
struct slot_set {
	uint64_t bits[VGPU_SLOTS_MAX / 64];
};

/* Finds the slots that are over, among `most` slots from `first` on, with a wrap-around. Returns
 * how many. The lock is not held: asking the kernel about a thousand slots takes milliseconds. */
static unsigned find_over(struct region *region, uint64_t first, unsigned most,
			  struct slot_set *ret_over)
{
	unsigned count = region_slots_in_use(region->file), found = 0;

	memset(ret_over, 0, sizeof(*ret_over));
	for (unsigned i = 0; i < count && i < most; i++) {
		unsigned slot = (unsigned)((first + i) % count);

		if (!is_free(region, slot) && region_slot_is_over(region, slot)) {
			ret_over->bits[slot / 64] |= (uint64_t)1 << slot % 64;
			found++;
		}
	}
	return found;
}

/* Each claim looks at some slots, and the next claim of the same slot at the next ones. So slots of
 * dead processes are cleared also in a slice that never runs out of memory. */
static void find_some_over(struct region *region, struct slot_set *ret_over)
{
	uint64_t claims = REGION_LOAD(region->file->own.slots[region->slot].claims);

	find_over(region, claims * CLAIM_LOOKS, CLAIM_LOOKS, ret_over);
}

/* Clears the slots of the set that are still over. Returns how many. The totals are out of date
 * then. */
static int clear_over_locked(struct region *region, const struct slot_set *over)
{
	int cleared = 0;

	for (int slot = -1; (slot = region_next_slot(region->file, slot)) >= 0;)
		if (over->bits[slot / 64] >> slot % 64 & 1 &&
		    region_slot_is_over(region, (unsigned)slot) &&
		    (region->counts || !region_share_needs_keeper(region, (unsigned)slot))) {
			clear_dead_slot_locked(region, (unsigned)slot);
			cleared++;
		}
	return cleared;
}

int region_clear_dead_locked(struct region *region)
{
	struct slot_set all;

	memset(&all, 0xff, sizeof(all));
	return clear_over_locked(region, &all);
}

uint64_t region_sum_classes(const struct vgpu_hami_usage *usage)
{
	return REGION_LOAD(usage->context) + REGION_LOAD(usage->module) + REGION_LOAD(usage->data) +
	       REGION_LOAD(usage->offset);
}

/* Sets the slot's totals, and adds its bytes to used[] if the slot counts. */
static void compute_slot_totals(struct vgpu_region_file *file, unsigned index,
				uint64_t used[VGPU_DEVICES_MAX])
{
	struct vgpu_hami_slot *slot = &file->hami.slots[index];

	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++) {
		uint64_t total = region_sum_classes(&slot->used[device]);

		if (REGION_LOAD(slot->used[device].total) != total)
			REGION_STORE(slot->used[device].total, total);
		used[device] += region_slot_bytes(file, index, device);
	}
}

void region_compute_totals_locked(struct vgpu_region_file *file)
{
	uint64_t used[VGPU_DEVICES_MAX] = {0};

	for (int slot = -1; (slot = region_next_slot(file, slot)) >= 0;) {
		compute_slot_totals(file, (unsigned)slot, used);
		region_step(totals_slot);
	}
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++) {
		REGION_STORE(file->own.device[device].used, used[device]);
		region_step(totals_device);
	}
}

/* Our pid on the host is known only in the host's pid namespace. */
static void fill_slot_locked(struct region *region, unsigned index, int pid, uint64_t pid_namespace,
			     const struct slot_set *over)
{
	struct vgpu_region_file *file = region->file;
	struct vgpu_hami_slot *slot = &file->hami.slots[index];
	bool was_counted = !is_free(region, index); /* a dead owner's slot */

	if (was_counted)
		clear_dead_slot_locked(region, index);
	else
		region_clear_slot_locked(region, index);
	if (clear_over_locked(region, over) || was_counted)
		region_compute_totals_locked(file);
	REGION_STORE(slot->pid, pid);
	REGION_STORE(slot->hostpid, pid_namespace == INITIAL_PID_NAMESPACE ? pid : 0);
	REGION_STORE(file->own.slots[index].pid_namespace, pid_namespace);
	REGION_STORE(file->own.slots[index].joint_gang, 0);
	REGION_STORE(file->own.slots[index].guess, 0);
	/* A dead process may have left a high-water mark that is too low, but never one below a
	 * slot that counts. */
	if (region_slots_in_use(file) < index + 1)
		REGION_PUBLISH(file->hami.slot_count, (int32_t)index + 1);
	region_step(claim_filled);
	/* This store is the last: the slot counts from here on. It pairs with region_pause, and
	 * with readers. */
	__atomic_store_n(&slot->status, VGPU_SLOT_RUNNING, __ATOMIC_SEQ_CST);
	region_pause_newcomer(file, index);
	region->counts = true;
	region_step(claim_published);
}

static void trace_joined(struct region *region)
{
	struct trace_event event = {.kind = TRACE_JOINED, .device = -1, .a = region->slot};

	event.b = region_living(region);
	trace_add_event(&event);
}

/* Undoes a claim that failed. */
static void give_up_claim(struct region *region)
{
	unsigned slot = (unsigned)region->slot;

	trace_forget();
	region->slot = -1;
	give_byte(region, slot);
}

int region_claim(struct region *region, struct fault *fault)
{
	uint64_t pid_namespace = region_pid_namespace();
	int pid = sys_getpid(), slot, error;
	struct slot_set over;

	if (!region->writable)
		return fault_set(
			fault, -EROFS,
			"the region may only be read here: no process can be counted in it");
	if (region->slot >= 0)
		return fault_set(fault, -EALREADY, "this process has slot %d of the region already",
				 region->slot);
	slot = take_byte(region, false);
	if (slot == -EUSERS)
		return fault_set(
			fault, slot,
			"all %d slots of the region are held by living processes: end some of them",
			VGPU_SLOTS_MAX);
	if (slot < 0)
		return fault_set(fault, slot, "no slot of the region can be locked: error %d",
				 -slot);
	region_step(claim_byte);
	region->slot = slot;
	region->pid = pid;
	trace_begin(region->path, slot, region->file->own.device);
	find_some_over(region, &over);
	error = region_lock(region);
	if (error) {
		give_up_claim(region);
		return region_cannot_lock(region, error, fault);
	}
	/* The slot may be a dead process's, with memory that only a descriptor keeps. That charge
	 * must move to another slot, and there may be none. */
	if (!is_free(region, (unsigned)slot) && region_share_needs_keeper(region, (unsigned)slot))
		error = -EUSERS;
	else
		fill_slot_locked(region, (unsigned)slot, pid, pid_namespace, &over);
	region_unlock(region);
	if (error) {
		give_up_claim(region);
		return fault_set(fault, error,
				 "no slot of the region is free: the last one counts memory that a "
				 "descriptor keeps");
	}
	if (trace_wants(TRACE_REGION))
		trace_joined(region);
	return 0;
}

int region_reap(struct region *region)
{
	int cleared, error = region_watch(region);
	struct slot_set over;

	if (error)
		return error;
	if (find_over(region, 0, VGPU_SLOTS_MAX, &over) == 0) /* the usual answer */
		return 0;
	error = region_lock_any(region);
	if (error)
		return error;
	cleared = clear_over_locked(region, &over);
	if (cleared)
		region_compute_totals_locked(region->file);
	region_unlock_any(region);
	return cleared;
}

unsigned region_living(struct region *region)
{
	unsigned living = 0;

	for (int slot = -1; (slot = region_next_slot(region->file, slot)) >= 0;)
		living += region_slot_alive(region, (unsigned)slot);
	return living;
}

/* Reads a slot's process without the lock. Pairs with fill_slot_locked, which publishes the status
 * after the pids, and with region_clear_slot_locked, which clears the status before them. */
static bool see_process(struct region *region, unsigned index, int device,
			struct region_process *ret_process)
{
	const struct vgpu_hami_slot *slot = &region->file->hami.slots[index];

	if (!REGION_SEE(slot->status) || !region_slot_alive(region, index))
		return false;
	ret_process->pid = REGION_SEE(slot->pid);
	ret_process->hostpid = REGION_SEE(slot->hostpid);
	ret_process->bytes = device < 0 ? 0 : REGION_SEE(slot->used[device].total);
	return REGION_SEE(slot->status) != VGPU_SLOT_FREE;
}

unsigned region_processes(struct region *region, int device,
			  struct region_process ret_processes[VGPU_SLOTS_MAX])
{
	unsigned count = region_watch(region) == 0 ? region_slots_in_use(region->file) : 0;
	unsigned living = 0;

	for (unsigned slot = 0; slot < count; slot++)
		living += see_process(region, slot, device, &ret_processes[living]);
	return living;
}
