/*
 * Writes a slice's devices and limits into its region:
 *
 *     region_make   into zeros
 *     reset         over the devices and limits of a region in which no process lives
 *     append        after the devices of a region in which a process lives
 *
 * What always holds. All three run under the byte VGPU_INIT_LOCK_OFFSET, so there is one at a time.
 * Reset and append hold the lock as well, because other processes may charge and claim meanwhile.
 * The index of a device never changes while a process has a slot: devices are only added, each of
 * them complete before device_count covers it. A process that has opened the region and has no slot
 * yet does not prevent a reset. So a process first claims a slot, and then looks devices up.
 *
 * If the process is killed on any line:
 *
 *     in region_make   own.magic is REGION_MAKING_MAGIC, or HAMi's magic is still 0, and the next
 *                      opener makes the file again
 *     in a reset       device_count is 0, or everything is written. No process lives in the region,
 *                      and the next opener resets it again. A process that had opened it before
 *                      finds no devices in it, which is refused.
 *     in an append     the device is there or it is not
 *
 * A reset waits for dying processes, whose memory still counts. If they take too long, devices are
 * appended, and the old limits stay.
 *
 * What it is not: where existing limits are changed (region_change_limit).
 */
#include <errno.h>
#include <string.h>

#include "clock.h"
#include "hash.h"
#include "region_internal.h"
#include "sys.h"

_Static_assert(VGPU_UUID_LEN % sizeof(uint64_t) == 0, "uuids are stored by the word");

static int find_device(const struct vgpu_region_file *file, const char *uuid)
{
	const struct vgpu_hami_region *hami = &file->hami;
	unsigned count = region_devices_in_use(file);

	if (uuid[0] == '\0')
		return -ENOENT;
	for (unsigned device = 0; device < count; device++)
		if (strncmp(hami->uuids[device], uuid, VGPU_UUID_LEN) == 0)
			return (int)device;
	return -ENOENT;
}

int region_find_device(struct region *region, const char *uuid)
{
	int error = region_watch(region);

	return error ? error : find_device(region->file, uuid);
}

int region_check_setup(const struct region_setup *setup, struct fault *fault)
{
	if (setup->device_count > VGPU_DEVICES_MAX)
		return fault_set(fault, -EINVAL, "%u devices for one slice: %d is the most",
				 setup->device_count, VGPU_DEVICES_MAX);
	for (unsigned i = 0; i < setup->device_count; i++) {
		const char *uuid = setup->device[i].uuid;

		if (uuid[0] == '\0' || !memchr(uuid, '\0', VGPU_UUID_LEN))
			return fault_set(fault, -EINVAL, "device %u of the slice has no valid UUID",
					 i);
		for (unsigned j = 0; j < i; j++)
			if (strcmp(uuid, setup->device[j].uuid) == 0)
				return fault_set(fault, -EINVAL, "the slice has device %s twice",
						 uuid);
	}
	return 0;
}

static void store_uuid(char *to, const char *from)
{
	char padded[VGPU_UUID_LEN] = {0};
	uint64_t word;

	strncpy(padded, from, VGPU_UUID_LEN - 1);
	for (size_t at = 0; at < VGPU_UUID_LEN; at += sizeof(word)) {
		memcpy(&word, padded + at, sizeof(word));
		REGION_PUBLISH(*(uint64_t *)(void *)(to + at), word);
	}
}

static void clear_bucket(struct vgpu_region_bucket *bucket)
{
	REGION_PUBLISH(bucket->refilled, 0);
	REGION_PUBLISH(bucket->credit, 0);
	REGION_PUBLISH(bucket->charged, 0);
	REGION_PUBLISH(bucket->corrected, 0);
	REGION_PUBLISH(bucket->busy_until, 0);
	REGION_PUBLISH(bucket->shut, 0);
	REGION_PUBLISH(bucket->refused, 0);
	REGION_PUBLISH(bucket->shut_at, 0);
	REGION_PUBLISH(bucket->joint_charged, 0);
}

static void clear_turn(struct vgpu_region_turn *turn)
{
	REGION_PUBLISH(turn->held_from, 0);
	REGION_PUBLISH(turn->ready_at, 0);
	REGION_PUBLISH(turn->busy_until, 0);
	REGION_PUBLISH(turn->paid_until, 0);
	REGION_PUBLISH(turn->paid_ns, 0);
	REGION_PUBLISH(turn->charged_ns, 0);
	REGION_PUBLISH(turn->shared, 0);
	REGION_PUBLISH(turn->joint_until, 0);
}

static void clear_group(struct vgpu_region_group *group)
{
	REGION_PUBLISH(group->used_ns, 0);
	REGION_PUBLISH(group->counted, 0);
	REGION_PUBLISH(group->shut_at, 0);
	REGION_PUBLISH(group->closing_ns, 0);
	REGION_PUBLISH(group->members, 0);
	REGION_PUBLISH(group->cut, 0);
	REGION_PUBLISH(group->opened_at, 0);
	REGION_PUBLISH(group->met_at, 0);
	REGION_PUBLISH(group->launcher, 0);
	REGION_PUBLISH(group->holder, 0);
}

/* No process that lives has an entry. */
static void clear_gang(struct vgpu_region_gang *gang)
{
	for (unsigned i = 0; i < VGPU_GANG_MEMBERS_MAX; i++)
		REGION_PUBLISH(gang->member[i].owner, 0);
	clear_group(&gang->group);
}

static void clear_waits(struct vgpu_region_waits *waits)
{
	REGION_PUBLISH(waits->turns, 0);
	REGION_PUBLISH(waits->waited_ns, 0);
	for (unsigned i = 0; i < VGPU_WAITS; i++)
		REGION_PUBLISH(waits->count[i], 0);
}

/* Stores device i of the setup as a device that device_count does not cover yet. All stores are
 * releases, so a reader that sees one of them, and then reads device_count, sees that. */
static void store_device(struct vgpu_region_file *file, unsigned device,
			 const struct region_setup *setup, unsigned i)
{
	store_uuid(file->hami.uuids[device], setup->device[i].uuid);
	REGION_PUBLISH(file->hami.limit[device], setup->device[i].memory_bytes);
	REGION_PUBLISH(file->hami.sm_limit[device], setup->device[i].cores_pct);
	REGION_PUBLISH(file->turn[device].cores_most, setup->device[i].cores_most_pct);
	REGION_PUBLISH(file->own.device[device].used, 0);
	REGION_PUBLISH(file->own.device[device].context_cost, 0);
	REGION_PUBLISH(file->own.device[device].first_limit, setup->device[i].memory_bytes);
	REGION_PUBLISH(file->own.device[device].gang_until, 0);
	REGION_PUBLISH(file->own.device[device].throttled_ns, 0);
	REGION_PUBLISH(file->own.device[device].throttled, 0);
	REGION_PUBLISH(file->own.device[device].held, 0);
	REGION_PUBLISH(file->own.device[device].burst_ns, setup->device[i].burst_ns);
	clear_bucket(&file->own.device[device].bucket);
	clear_group(&file->group[device]);
	clear_turn(&file->turn[device]);
	clear_waits(&file->own.waits[device]);
}

/* Stores all of the setup except device_count, the magics and own.paused. A paused slice stays
 * paused when its processes or limits change. */
static void store_setup(struct vgpu_region_file *file, const struct region_setup *setup)
{
	struct vgpu_hami_region *hami = &file->hami;
	static const struct region_setup none;

	clear_gang(&file->own.gang);
	for (unsigned i = 0; i < VGPU_DEVICES_MAX; i++)
		store_device(file, i, i < setup->device_count ? setup : &none, i);
	REGION_STORE(hami->utilization_switch, 1);
	REGION_STORE(hami->recent_kernel, 2);
	REGION_STORE(hami->priority, setup->priority);
	REGION_STORE(hami->last_kernel_time, 0);
}

/* A number for own.made that an earlier region of the file most likely did not have. It is never 0,
 * the value in regions of vgpu versions without the field. */
static uint32_t making_number(void)
{
	return (uint32_t)(clock_now_ns() >> 10) | 1;
}

uint64_t region_path_hash(const char *path)
{
	return path[0] == '/' ? hash_bytes(path, strlen(path)) : 0;
}

void region_make(struct vgpu_region_file *file, const char *path, const struct region_setup *setup)
{
	REGION_PUBLISH(file->own.magic, REGION_MAKING_MAGIC);
	region_step(make_marked);
	store_setup(file, setup);
	REGION_STORE(file->own.paused, 0);
	REGION_STORE(file->hami.version_major, VGPU_HAMI_VERSION_MAJOR);
	REGION_STORE(file->hami.version_minor, VGPU_HAMI_VERSION_MINOR);
	REGION_STORE(file->hami.device_count, setup->device_count);
	REGION_STORE(file->own.version, VGPU_REGION_VERSION);
	REGION_STORE(file->own.made, making_number());
	REGION_STORE(file->own.path, region_path_hash(path));
	REGION_STORE(file->own.size, (uint32_t)sizeof(*file));
	region_step(make_filled);
	/* Both stores pair with the REGION_SEE of the magics in look_at_region. */
	REGION_PUBLISH(file->own.magic, VGPU_REGION_MAGIC);
	region_step(make_own_magic);
	REGION_PUBLISH(file->hami.magic, VGPU_HAMI_MAGIC);
	region_step(make_done);
}

/* No process lives in the region. */
static void reset_locked(struct region *region, const struct region_setup *setup)
{
	struct vgpu_region_file *file = region->file;
	unsigned count = region_slots_in_use(file);

	REGION_STORE(file->hami.device_count, 0);
	region_step(reset_hidden);
	region_share_reset_locked(file);
	region_step(reset_shares);
	for (unsigned slot = 0; slot < count; slot++)
		region_clear_slot_locked(region, slot);
	REGION_STORE(file->hami.slot_count, 0);
	region_step(reset_slots);
	store_setup(file, setup);
	REGION_STORE(file->own.path, region_path_hash(region->path));
	region_step(reset_written);
	REGION_PUBLISH(file->hami.device_count, setup->device_count);
	region_step(reset_done);
}

/* How many of the setup's devices the region lacks. */
static unsigned count_lacking(const struct region *region, const struct region_setup *setup)
{
	unsigned lacking = 0;

	for (unsigned i = 0; i < setup->device_count; i++)
		lacking += find_device(region->file, setup->device[i].uuid) < 0;
	return lacking;
}

static void append_locked(struct region *region, const struct region_setup *setup)
{
	struct vgpu_region_file *file = region->file;

	for (unsigned i = 0; i < setup->device_count; i++) {
		unsigned device = region_devices_in_use(file);

		if (find_device(file, setup->device[i].uuid) >= 0)
			continue;
		store_device(file, device, setup, i);
		region_step(append_written);
		REGION_PUBLISH(file->hami.device_count, device + 1);
		region_step(append_done);
	}
}

/* Waits for dying processes, as after a kill and a new start: their memory still counts. */
static void await_endings(struct region *region)
{
	uint64_t deadline_ns = clock_now_ns() + REGION_DYING_PATIENCE_NS;

	while (region_any_ending(region) && !region_anybody_lives(region) &&
	       clock_now_ns() < deadline_ns)
		sys_sleep_ns(NS_PER_MS);
}

int region_adopt(const char *path, struct region *region, const struct region_setup *setup,
		 struct fault *fault)
{
	unsigned lacking = count_lacking(region, setup);
	int error;

	if (!region_anybody_lives(region))
		await_endings(region);
	else if (lacking == 0)
		return 0; /* there is nothing to write, and so no need for the lock */
	error = region_lock_any(region);
	if (error)
		return region_cannot_lock(region, error, fault);
	if (!region_anybody_lives(region) && !region_any_ending(region) &&
	    !region_share_any_kept(region))
		reset_locked(region, setup);
	else if (region_devices_in_use(region->file) + lacking > VGPU_DEVICES_MAX)
		error = fault_set(
			fault, -EINVAL,
			"region %s has %u devices, and %u more do not fit: %d is the most", path,
			region_devices_in_use(region->file), lacking, VGPU_DEVICES_MAX);
	else
		append_locked(region, setup);
	region_unlock_any(region);
	return error;
}
