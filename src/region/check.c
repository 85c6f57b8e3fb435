/*
 * Checks the invariants of a region, for tests and for `vgpu inspect`.
 *
 * How it works. Each invariant that does not hold gives one line. The holder of the lock is checked
 * before the lock is taken. To take the lock from a dead holder repairs the damage that the check
 * should find. Then everything is read under the lock. If the lock may not or cannot be taken,
 * everything is read without it, and a change in progress can look like damage. So an invariant
 * counts as broken only if it is still broken when it is read again, RETRIES times.
 *
 * A dead process that still counts is no damage: its slot counts until another process needs room.
 *
 * What it is not: a repair. region_reap and the next process of the slice repair.
 */
#include <errno.h>
#include <string.h>

#include "clock.h"
#include "region_internal.h"
#include "sys.h"

#define RETRIES       5
#define RETRY_WAIT_NS NS_PER_MS

struct report {
	void (*say)(void *arg, const char *line);
	void *arg;
	unsigned wrong;
	unsigned by_callers; /* of these, how many a caller can cause that refunds too much */
};

#define SAY(report, ...)                           \
	do {                                       \
		struct fault line_;                \
		fault_set(&line_, 0, __VA_ARGS__); \
		report_line(report, line_.text);   \
	} while (0)

static void report_line(struct report *report, const char *line)
{
	report->wrong++;
	if (report->say)
		report->say(report->arg, line);
}

typedef unsigned long long number; /* for %llu: uint64_t is long on some machines */

static void check_header(const struct vgpu_region_file *file, struct report *report)
{
	const struct vgpu_hami_region *hami = &file->hami;
	uint64_t devices = REGION_LOAD(hami->device_count);
	int32_t slots = REGION_LOAD(hami->slot_count);

	if (hami->magic != VGPU_HAMI_MAGIC)
		SAY(report, "HAMi's magic is %d, not %d", hami->magic, VGPU_HAMI_MAGIC);
	if (file->own.magic != VGPU_REGION_MAGIC)
		SAY(report, "our magic is %#llx, not %#llx", (number)file->own.magic,
		    (number)VGPU_REGION_MAGIC);
	if (hami->version_major != VGPU_HAMI_VERSION_MAJOR ||
	    hami->version_minor != VGPU_HAMI_VERSION_MINOR)
		SAY(report, "the layout is %u.%u, not %d.%d", hami->version_major,
		    hami->version_minor, VGPU_HAMI_VERSION_MAJOR, VGPU_HAMI_VERSION_MINOR);
	if (file->own.version != VGPU_REGION_VERSION)
		SAY(report, "our version is %u, not %d", file->own.version, VGPU_REGION_VERSION);
	if (file->own.size != sizeof(*file))
		SAY(report, "its size is %u bytes, not %zu", file->own.size, sizeof(*file));
	if (devices > VGPU_DEVICES_MAX)
		SAY(report, "%llu devices: %d is the most", (number)devices, VGPU_DEVICES_MAX);
	if (slots < 0 || slots > VGPU_SLOTS_MAX)
		SAY(report, "%d slots: %d is the most", slots, VGPU_SLOTS_MAX);
}

/* Whether the text is printable, not empty, and followed by NULs to the end. */
static bool is_uuid(const char uuid[VGPU_UUID_LEN])
{
	size_t len = 0;

	while (len < VGPU_UUID_LEN && uuid[len] > ' ' && uuid[len] < 127)
		len++;
	if (len == 0 || len == VGPU_UUID_LEN)
		return false;
	while (len < VGPU_UUID_LEN)
		if (uuid[len++] != '\0')
			return false;
	return true;
}

static void check_devices(const struct vgpu_region_file *file, struct report *report)
{
	unsigned count = region_devices_in_use(file);

	for (unsigned i = 0; i < count; i++) {
		if (!is_uuid(file->hami.uuids[i]))
			SAY(report, "device %u: its uuid is none", i);
		for (unsigned j = 0; j < i; j++)
			if (memcmp(file->hami.uuids[i], file->hami.uuids[j], VGPU_UUID_LEN) == 0)
				SAY(report, "devices %u and %u are the same", j, i);
	}
}

/* Checks the slot's totals, and adds its bytes to used[]. */
static void check_slot_usage(const struct vgpu_region_file *file, unsigned slot,
			     uint64_t used[VGPU_DEVICES_MAX], struct report *report)
{
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++) {
		const struct vgpu_hami_usage *usage = &file->hami.slots[slot].used[device];
		uint64_t sum = REGION_LOAD(usage->context) + REGION_LOAD(usage->module) +
			       REGION_LOAD(usage->data) + REGION_LOAD(usage->offset);
		uint64_t total = REGION_LOAD(usage->total);

		if (total != sum)
			SAY(report, "slot %u, device %u: its total is %llu, its classes are %llu",
			    slot, device, (number)total, (number)sum);
		if (total && region_slot_is_exiting(file, slot))
			SAY(report, "slot %u, device %u: its process exits, its total is %llu",
			    slot, device, (number)total);
		used[device] += region_slot_bytes(file, slot, device);
	}
}

static void check_slot(const struct region *region, unsigned slot, struct report *report)
{
	const struct vgpu_hami_slot *at = &region->file->hami.slots[slot];
	int32_t status = REGION_LOAD(at->status);

	if (region_slot_is_exiting(region->file, slot)) {
		if (status != VGPU_SLOT_FREE || REGION_LOAD(at->pid))
			SAY(report, "slot %u: its process exits, its status is %d and its pid %d",
			    slot, status, REGION_LOAD(at->pid));
	} else if (status != VGPU_SLOT_RUNNING && status != VGPU_SLOT_SUSPENDED)
		SAY(report, "slot %u: status %d means nothing", slot, status);
	if (slot >= region_slots_in_use(region->file))
		SAY(report, "slot %u is used, and the high-water mark is %d", slot,
		    REGION_LOAD(region->file->hami.slot_count));
}

static void check_totals(const struct region *region, struct report *report)
{
	const struct vgpu_region_file *file = region->file;
	uint64_t used[VGPU_DEVICES_MAX] = {0};

	for (unsigned slot = 0; slot < VGPU_SLOTS_MAX; slot++)
		if (!region_slot_is_free(file, slot)) {
			check_slot(region, slot, report);
			check_slot_usage(file, slot, used, report);
		}
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++) {
		uint64_t total = REGION_LOAD(file->own.device[device].used);

		if (total != used[device])
			SAY(report, "device %u: its total is %llu, its slots are %llu", device,
			    (number)total, (number)used[device]);
	}
}

/* Checks that the charges that moved to the entry's slot are not more than the slot's data. A line
 * is given for the first such entry of a slot only. */
static void check_moved(const struct vgpu_region_file *file, unsigned index, struct report *report)
{
	const struct vgpu_region_share *share = &file->own.shares[index];
	unsigned slot = REGION_LOAD(share->slot), device = REGION_LOAD(share->device);
	uint64_t data, moved = 0;

	if (slot >= VGPU_SLOTS_MAX || device >= VGPU_DEVICES_MAX)
		return; /* the entry was changed since check_share read it */
	data = region_slot_is_exiting(file, slot)
		       ? REGION_LOAD(file->hami.slots[slot].used[device].exiting_data)
		       : REGION_LOAD(file->hami.slots[slot].used[device].data);
	for (unsigned i = 0; i < region_shares_in_use(file); i++) {
		const struct vgpu_region_share *other = &file->own.shares[i];

		if (REGION_LOAD(other->state) != VGPU_SHARE_MOVED ||
		    REGION_LOAD(other->slot) != slot || REGION_LOAD(other->device) != device)
			continue;
		if (i < index)
			return;
		moved += REGION_LOAD(other->bytes);
	}
	if (moved > data) {
		SAY(report, "slot %u, device %u: %llu bytes moved there, and its data are %llu",
		    slot, device, (number)moved, (number)data);
		report->by_callers++;
	}
}

static void check_exported(const struct vgpu_region_file *file, unsigned index,
			   struct report *report)
{
	const struct vgpu_region_share *share = &file->own.shares[index];

	for (unsigned i = 0; i < index; i++) {
		const struct vgpu_region_share *other = &file->own.shares[i];

		if (REGION_LOAD(other->state) == VGPU_SHARE_EXPORT &&
		    REGION_LOAD(other->key) == REGION_LOAD(share->key) &&
		    REGION_LOAD(other->slot) == REGION_LOAD(share->slot))
			SAY(report, "shares %u and %u: slot %u exports the same twice", i, index,
			    REGION_LOAD(share->slot));
	}
}

static void check_share(struct vgpu_region_file *file, unsigned index, struct report *report)
{
	const struct vgpu_region_share *share = &file->own.shares[index];
	unsigned state = REGION_LOAD(share->state), slot = REGION_LOAD(share->slot);
	unsigned device = REGION_LOAD(share->device);

	if (state > VGPU_SHARE_KEPT)
		SAY(report, "share %u: state %u means nothing", index, state);
	else if (slot >= VGPU_SLOTS_MAX)
		SAY(report, "share %u: there is no slot %u", index, slot);
	else if (device >= region_devices_in_use(file))
		SAY(report, "share %u: there is no device %u", index, device);
	else if (region_slot_is_free(file, slot))
		SAY(report, "share %u: slot %u is free", index, slot);
	else if (!REGION_LOAD(share->key))
		SAY(report, "share %u: it has no key", index);
	else if (state == VGPU_SHARE_EXPORT)
		check_exported(file, index, report);
	else if (state == VGPU_SHARE_MOVED)
		check_moved(file, index, report);
	else if (state == VGPU_SHARE_KEPT)
		return;
	else if (!region_share_charge_of(file, share))
		SAY(report, "share %u: nobody has charged what slot %u imports", index, slot);
	else if (!REGION_LOAD(share->count))
		SAY(report, "share %u: slot %u imports it, and has it open 0 times", index, slot);
}

static void check_shares(struct vgpu_region_file *file, struct report *report)
{
	uint32_t count = REGION_LOAD(file->own.share_count);

	if (count > VGPU_SHARES_MAX)
		SAY(report, "%u shares: %d is the most", count, VGPU_SHARES_MAX);
	for (unsigned i = 0; i < VGPU_SHARES_MAX; i++) {
		if (REGION_LOAD(file->own.shares[i].state) == VGPU_SHARE_FREE)
			continue;
		if (i >= count)
			SAY(report, "share %u is used, and the high-water mark is %u", i, count);
		check_share(file, i, report);
	}
	if (REGION_LOAD(file->own.move.active))
		SAY(report, "a charge is half moved, from slot %u to slot %u",
		    REGION_LOAD(file->own.move.from), REGION_LOAD(file->own.move.to));
}

static void check_parts(const struct region *region, struct report *report)
{
	check_header(region->file, report);
	check_devices(region->file, report);
	check_totals(region, report);
	check_shares(region->file, report);
}

static unsigned check_all(const struct region *region, void (*say)(void *, const char *), void *arg)
{
	struct report report = {.say = say, .arg = arg};

	check_parts(region, &report);
	return report.wrong;
}

bool region_is_valid_locked(const struct region *region)
{
	struct report report = {.say = NULL};

	check_parts(region, &report);
	return report.wrong == report.by_callers;
}

static unsigned check_unlocked(const struct region *region, void (*say)(void *, const char *),
			       void *arg)
{
	for (int i = 0; i < RETRIES; i++) {
		if (check_all(region, NULL, NULL) == 0)
			return 0;
		sys_sleep_ns(RETRY_WAIT_NS);
	}
	return check_all(region, say, arg);
}

static bool holder_is_dead(struct region *region, uint32_t *ret_word)
{
	bool dead;

	if (region->slot < 0) /* an onlooker: a thread of ours may hold it, by a borrowed byte */
		lock_acquire(&region->onlooker);
	*ret_word = REGION_LOAD(region->file->own.lock);
	dead = *ret_word && !region_holder_lives(region, *ret_word);
	if (region->slot < 0)
		lock_release(&region->onlooker);
	return dead;
}

unsigned region_check(struct region *region, void (*say)(void *arg, const char *line), void *arg)
{
	struct report report = {.say = say, .arg = arg};
	uint32_t word;
	int error;

	if (holder_is_dead(region, &word))
		SAY(&report, "a dead process, of slot %d, holds the lock",
		    (int)(word & VGPU_LOCK_SLOT_MASK) - 1);
	error = region_lock_any(region);
	if (error == -ETIMEDOUT)
		SAY(&report, "a living process, of slot %d, does not release the lock",
		    (int)(REGION_LOAD(region->file->own.lock) & VGPU_LOCK_SLOT_MASK) - 1);
	if (error)
		return report.wrong + check_unlocked(region, say, arg);
	report.wrong += check_all(region, say, arg);
	region_unlock_any(region);
	return report.wrong;
}
