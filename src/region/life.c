/*
 * Which processes live, are dying, or are dead.
 *
 *     state    the slot's byte   its lock         its charge
 *     living   locked            is respected     counts
 *     dying    unlocked          is taken over    counts; the slot is left alone
 *     over     unlocked          is taken over    is refunded when another process needs room
 *
 * How it works. A process lives as long as its open file has its slot's byte locked. The kernel
 * unlocks the byte when the process's descriptors are closed, a fraction of a millisecond after a
 * kill. The driver's descriptors are closed then as well, but the driver needs longer. On an H200
 * with driver 580 the memory came back 60 to 140 ms after the kill. The process was a zombie at the
 * same time, because a process becomes a zombie only when all its files are released. Until then it
 * is dying.
 *
 * /proc shows whether a dead process is dying, by the pid in its slot. The pid exists, the process
 * is exiting (PF_EXITING), and it is not a zombie without other threads. If the pid is another
 * process's by now, or the process lives on after an exec, that process is not exiting. Pids mean
 * something in their own namespace only. For a slot of another namespace, or if /proc does not
 * answer, a dead process counts as dying for GRACE_MS after this process first saw it dead.
 *
 * What always holds. A process that counts as living never counts as dying. In case of doubt it
 * counts as living: if the kernel answers with an error, or there is no descriptor to ask with.
 *
 * A dead process may count as living for some milliseconds longer. The mapping keeps the open file
 * and its lock, and a program that reads /proc/pid/maps delays the unmapping (32 ms on a machine
 * with no core free).
 *
 * No lock. Any thread writes deaths[]: seen_ms first, then the claim, which makes the entry valid.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "clock.h"
#include "fields.h"
#include "region_internal.h"
#include "sys.h"
#include "trace.h"

#define GRACE_MS   250
#define PF_EXITING 0x4 /* linux/sched.h; in the 9th field of /proc/pid/stat, proc(5) */

/* Fields of /proc/pid/stat, counted from the end of the program's name, which may contain any
 * character. */
enum stat_field { FIELD_STATE = 1, FIELD_FLAGS = 7, FIELD_THREADS = 18 };

bool region_slot_alive(struct region *region, unsigned slot)
{
	if (slot >= VGPU_SLOTS_MAX)
		return false;
	if (region->slot >= 0 && slot == (unsigned)region->slot)
		return true;
	if (!region_has_fd(region))
		return true;
	return sys_byte_is_locked(REGION_LOAD(region->fd), VGPU_SLOT_LOCK_OFFSET + slot) != 0;
}

/* Asks the kernel about all bytes at once. Only if one is locked, which may be an onlooker's, asks
 * about each slot: with 1,000 bytes locked, each question takes 3 us. */
bool region_anybody_lives(struct region *region)
{
	if (region_has_fd(region) &&
	    sys_bytes_are_locked(REGION_LOAD(region->fd), VGPU_SLOT_LOCK_OFFSET, VGPU_SLOTS_MAX) ==
		    0)
		return false;
	for (int slot = -1; (slot = region_next_slot(region->file, slot)) >= 0;)
		if (region_slot_alive(region, (unsigned)slot))
			return true;
	return false;
}

uint64_t region_pid_namespace(void)
{
	struct stat st;

	return sys_stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

/* -- dying processes
 * -------------------------------------------------------------------------------- */

/* Whether /proc is mounted for this process's pid namespace. */
static bool proc_is_ours(void)
{
	char target[16], own[16];

	if (sys_readlink("/proc/self", target, sizeof(target)) < 0)
		return false;
	snprintf(own, sizeof(own), "%d", sys_getpid());
	return strcmp(target, own) == 0;
}

static enum region_end ask_proc(int pid)
{
	char text[1024];
	const char *name_end;
	long len;
	int fd;

	if (pid <= 0 || !proc_is_ours())
		return REGION_END_UNKNOWN;
	snprintf(text, sizeof(text), "/proc/%d/stat", pid);
	fd = sys_open(text, O_RDONLY, 0);
	if (fd < 0)
		return sys_process_exists(pid) ? REGION_END_UNKNOWN : REGION_END_OVER;
	len = sys_read(fd, text, sizeof(text) - 1);
	sys_close(fd);
	text[len > 0 ? len : 0] = '\0';
	name_end = strrchr(text, ')');
	if (!name_end || !field_at(name_end, FIELD_THREADS))
		return len == -ESRCH ? REGION_END_OVER : REGION_END_UNKNOWN;
	if (!(field_number(name_end, FIELD_FLAGS) & PF_EXITING))
		return REGION_END_OVER;
	return *field_at(name_end, FIELD_STATE) == 'Z' && field_number(name_end, FIELD_THREADS) <= 1
		       ? REGION_END_OVER
		       : REGION_END_SEEN;
}

static bool in_grace(struct region *region, unsigned slot)
{
	struct region_death *death = &region->deaths[slot];
	uint32_t claim = (uint32_t)REGION_LOAD(region->file->own.slots[slot].claims);
	uint32_t now_ms = (uint32_t)(clock_coarse_ns() / NS_PER_MS);

	if (REGION_SEE(death->claim) == claim) /* pairs with the store below */
		return now_ms - REGION_LOAD(death->seen_ms) < GRACE_MS;
	REGION_STORE(death->seen_ms, now_ms);
	REGION_PUBLISH(death->claim, claim);
	return true;
}

static bool holds_any(const struct vgpu_region_file *file, unsigned slot)
{
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		if (region_slot_bytes(file, slot, device))
			return true;
	return false;
}

int region_slot_pid(const struct vgpu_region_file *file, unsigned slot)
{
	int exiting = REGION_LOAD(file->own.slots[slot].exiting_pid);

	return exiting ? exiting : REGION_LOAD(file->hami.slots[slot].pid);
}

enum region_end region_slot_end(struct region *region, unsigned slot)
{
	uint64_t theirs = REGION_LOAD(region->file->own.slots[slot].pid_namespace);
	enum region_end end = REGION_END_UNKNOWN;

	if (!holds_any(region->file, slot))
		return REGION_END_OVER;
	if (theirs && theirs == region_pid_namespace())
		end = ask_proc(region_slot_pid(region->file, slot));
	if (end == REGION_END_UNKNOWN && !in_grace(region, slot))
		return REGION_END_OVER;
	return end;
}

bool region_slot_is_over(struct region *region, unsigned slot)
{
	return !region_slot_alive(region, slot) && !region_slot_dying(region, slot);
}

bool region_slot_dying(struct region *region, unsigned slot)
{
	return region_slot_end(region, slot) != REGION_END_OVER;
}

bool region_any_ending(struct region *region)
{
	for (int slot = -1; (slot = region_next_slot(region->file, slot)) >= 0;)
		if (!region_slot_alive(region, (unsigned)slot) &&
		    region_slot_end(region, (unsigned)slot) == REGION_END_SEEN)
			return true;
	return false;
}

static bool any_dying(struct region *region, unsigned device)
{
	for (int slot = -1; (slot = region_next_slot(region->file, slot)) >= 0;)
		if (region_slot_bytes(region->file, (unsigned)slot, device) &&
		    !region_slot_alive(region, (unsigned)slot) &&
		    region_slot_dying(region, (unsigned)slot))
			return true;
	return false;
}

bool region_wait_dying(struct region *region, unsigned device)
{
	uint64_t deadline_ns, from_ns;

	if (device >= VGPU_DEVICES_MAX || region_watch(region) != 0 || !any_dying(region, device))
		return false;
	from_ns = clock_now_ns();
	deadline_ns = from_ns + REGION_DYING_PATIENCE_NS;
	do
		sys_sleep_ns(NS_PER_MS);
	while (region_watch(region) == 0 && any_dying(region, device) &&
	       clock_now_ns() < deadline_ns);
	if (trace_wants(TRACE_REGION))
		trace_add(TRACE_WAITED_DYING, (int)device, (int64_t)(clock_now_ns() - from_ns), 0);
	region_reap(region);
	return true;
}
