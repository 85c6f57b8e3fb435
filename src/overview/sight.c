/* Reads a region as any onlooker may: without its lock, each field by one load. */
#include "sight.h"

#include <string.h>

#include "clock.h"

/* One aligned load, as a program that reads a region without its lock must use. */
#define SEE(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)

#define AHEAD_NS (60 * NS_PER_S)

/* How many slots may have been used; all slots, if the region has an impossible number. Reading the
 * unused slots would make the kernel map most of the file. Pairs with fill_slot_locked
 * (region/slot.c). */
static unsigned slots_of(const struct vgpu_region_file *file)
{
	int32_t count = SEE(file->hami.slot_count);

	return count >= 0 && count <= VGPU_SLOTS_MAX ? (unsigned)count : VGPU_SLOTS_MAX;
}

/* Computed with unsigned numbers, because the file may hold any. Work further ahead than AHEAD_NS
 * cannot have been submitted (pace/backlog.c). */
static uint64_t done_of(const struct vgpu_region_bucket *bucket, uint64_t now_ns)
{
	uint64_t until_ns = SEE(bucket->busy_until);
	uint64_t taken_ns = (uint64_t)SEE(bucket->charged) + (uint64_t)SEE(bucket->corrected);

	return until_ns > now_ns && until_ns - now_ns < AHEAD_NS ? taken_ns - (until_ns - now_ns)
								 : taken_ns;
}

/* The shut time, with the present one until now; but at most until the bucket has recovered, which
 * no process notes while the slice launches nothing (pace/bucket.c). Unsigned for the same reason.
 */
static uint64_t throttled_ns_of(const struct vgpu_region_device *device, unsigned cores_pct,
				uint64_t now_ns)
{
	const struct vgpu_region_bucket *bucket = &device->bucket;
	uint64_t ns = SEE(device->throttled_ns), since_ns = SEE(bucket->shut_at);
	uint64_t until_ns = now_ns, recovered_ns = SEE(bucket->refilled);
	uint64_t debt_ns = (uint64_t)SEE(bucket->charged) + (uint64_t)SEE(bucket->corrected) -
			   (uint64_t)SEE(bucket->credit);

	if (!SEE(bucket->shut) || !since_ns)
		return ns;
	if ((int64_t)debt_ns > 0)
		recovered_ns += debt_ns * 100 / (cores_pct ? cores_pct : 100);
	if (until_ns > recovered_ns)
		until_ns = recovered_ns;
	return until_ns > since_ns ? ns + (until_ns - since_ns) : ns;
}

static void see_throttle(const struct vgpu_region_device *device, uint64_t now_ns,
			 struct sight_device *ret_device)
{
	ret_device->throttled = SEE(device->throttled);
	ret_device->throttled_ns = throttled_ns_of(device, ret_device->cores_pct, now_ns);
	ret_device->held = SEE(device->held);
	ret_device->charged_ns = (uint64_t)SEE(device->bucket.charged);
	ret_device->corrected_ns = SEE(device->bucket.corrected);
}

/* Whether the owner of a member is the living process of its slot. */
static bool is_member(struct region *region, uint32_t owner)
{
	const uint32_t slot_mask = (1u << VGPU_GANG_OWNER_SLOTS) - 1, claim_mask = 0xfffff;
	unsigned slot = (owner & slot_mask) - 1;
	uint64_t claims;

	if (slot >= VGPU_SLOTS_MAX)
		return false;
	claims = SEE(region->file->own.slots[slot].claims);
	return (((owner >> VGPU_GANG_OWNER_SLOTS) ^ claims) & claim_mask) == 0 &&
	       region_slot_alive(region, slot);
}

static void see_gang(struct region *region, struct sight *sight)
{
	const struct vgpu_region_gang *gang = &region->file->own.gang;
	unsigned count = SEE(gang->group.members);

	sight->gang = (struct sight_gang){.used_ns = SEE(gang->group.used_ns),
					  .shut = SEE(gang->group.shut_at) != 0};
	for (unsigned i = 0; i < count && i < VGPU_GANG_MEMBERS_MAX; i++) {
		unsigned device = SEE(gang->member[i].device);

		if (SEE(gang->member[i].slice) & VGPU_MEMBER_OF_DEVICE)
			continue; /* a group of processes that share a device, not a gang */
		if (device >= sight->device_count || !is_member(region, SEE(gang->member[i].owner)))
			continue;
		sight->gang.members++;
		sight->device[device].gang_members++;
	}
}

static void see_joint_gang(struct region *region, struct sight *sight)
{
	const struct vgpu_region_own *own = &region->file->own;
	unsigned slots = slots_of(region->file);

	for (unsigned slot = 0; slot < slots; slot++)
		sight->gang.joint_processes +=
			SEE(own->slots[slot].joint_gang) && region_slot_alive(region, slot);
	for (unsigned i = 0; i < sight->device_count; i++) {
		int64_t charged_ns = (int64_t)SEE(own->device[i].bucket.joint_charged);

		if (charged_ns > (int64_t)sight->gang.joint_used_ns)
			sight->gang.joint_used_ns = (uint64_t)charged_ns;
	}
}

static void see_turns(const struct region *region, unsigned index, struct sight_device *ret_device)
{
	const struct vgpu_region_waits *waits = &region->file->own.waits[index];

	ret_device->turn_ns = SEE(region->file->turn[index].paid_ns);
	ret_device->turns.turns = SEE(waits->turns);
	ret_device->turns.waited_ns = SEE(waits->waited_ns);
	for (unsigned i = 0; i < VGPU_WAITS; i++)
		ret_device->turns.count[i] = SEE(waits->count[i]);
}

static void see_cores(const struct region *region, unsigned index, struct sight_device *ret_device)
{
	uint64_t pct = SEE(region->file->hami.sm_limit[index]);
	uint32_t most_pct = SEE(region->file->turn[index].cores_most);

	ret_device->cores_pct = pct < 100 ? (unsigned)pct : 0;
	most_pct = most_pct < 100 ? most_pct : 100;
	ret_device->cores_most_pct =
		ret_device->cores_pct && most_pct > ret_device->cores_pct ? most_pct : 0;
}

static void see_device(struct region *region, unsigned index, uint64_t now_ns,
		       struct sight_device *ret_device)
{
	const struct vgpu_region_bucket *bucket = &region->file->own.device[index].bucket;
	const struct vgpu_hami_region *hami = &region->file->hami;

	memset(ret_device, 0, sizeof(*ret_device));
	for (unsigned i = 0; i < VGPU_UUID_LEN; i++) {
		char c = SEE(hami->uuids[index][i]);

		if (c == '\0')
			break;
		ret_device->uuid[i] = c > ' ' && c < 127 ? c : '?';
	}
	ret_device->used_bytes = region_shown(region, index);
	ret_device->limit_bytes = SEE(hami->limit[index]);
	see_cores(region, index, ret_device);
	ret_device->burst_ns = SEE(region->file->own.device[index].burst_ns);
	ret_device->done_ns = done_of(bucket, now_ns);
	ret_device->refused = SEE(bucket->refused);
	see_throttle(&region->file->own.device[index], now_ns, ret_device);
	see_turns(region, index, ret_device);
}

static const char *state_of(struct region *region, unsigned slot)
{
	if (region_slot_alive(region, slot))
		return SEE(region->file->hami.slots[slot].status) == VGPU_SLOT_SUSPENDED
			       ? "paused"
			       : "running";
	return region_slot_dying(region, slot) ? "dying" : "dead";
}

/* Whether a process has the slot. Asked before and after its fields are read. */
static bool see_process(struct region *region, unsigned slot, struct sight_process *ret_process)
{
	const struct vgpu_hami_slot *at = &region->file->hami.slots[slot];

	if (!SEE(at->status))
		return false;
	ret_process->slot = slot;
	ret_process->pid = SEE(at->pid);
	ret_process->hostpid = SEE(at->hostpid);
	ret_process->pid_namespace = SEE(region->file->own.slots[slot].pid_namespace);
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++) {
		const struct vgpu_hami_usage *usage = &at->used[device];
		struct sight_held *held = &ret_process->held[device];

		held->context = SEE(usage->context);
		held->module = SEE(usage->module);
		held->data = SEE(usage->data);
		held->offset = SEE(usage->offset);
		held->total = SEE(usage->total);
	}
	ret_process->state = state_of(region, slot);
	return SEE(at->status) != VGPU_SLOT_FREE;
}

static void see_exiting(struct region *region, unsigned slots, struct sight *sight)
{
	for (unsigned slot = 0; slot < slots; slot++) {
		const struct vgpu_region_slot *own = &region->file->own.slots[slot];
		int pid = SEE(own->exiting_pid);

		if (pid > 0 && (region_slot_alive(region, slot) || region_slot_dying(region, slot)))
			sight->exiting[sight->exiting_count++] =
				(struct sight_exiting){pid, SEE(own->pid_namespace)};
	}
}

void sight_take(struct region *region, struct sight *ret_sight)
{
	const struct vgpu_region_file *file = region->file;
	uint64_t devices = SEE(file->hami.device_count);
	unsigned slots = slots_of(file);

	ret_sight->looked_ns = clock_steady_ns();
	ret_sight->key = region_key(region);
	ret_sight->file_device = region->device;
	ret_sight->file_inode = region->inode;
	ret_sight->version = SEE(file->own.version);
	ret_sight->hami_major = SEE(file->hami.version_major);
	ret_sight->hami_minor = SEE(file->hami.version_minor);
	ret_sight->lock_slot = (int)(SEE(file->own.lock) & VGPU_LOCK_SLOT_MASK) - 1;
	ret_sight->takeovers = SEE(file->own.takeovers);
	ret_sight->lifted = SEE(file->hami.utilization_switch) == 0;
	ret_sight->paused = region_is_paused(region);
	ret_sight->blocked = SEE(file->hami.recent_kernel) < 0;
	ret_sight->launched_s = SEE(file->hami.last_kernel_time);
	ret_sight->device_count = devices > VGPU_DEVICES_MAX ? VGPU_DEVICES_MAX : (unsigned)devices;
	for (unsigned i = 0; i < ret_sight->device_count; i++)
		see_device(region, i, ret_sight->looked_ns, &ret_sight->device[i]);
	see_gang(region, ret_sight);
	see_joint_gang(region, ret_sight);
	ret_sight->process_count = 0;
	for (unsigned slot = 0; slot < slots; slot++)
		ret_sight->process_count +=
			see_process(region, slot, &ret_sight->process[ret_sight->process_count]);
	ret_sight->exiting_count = 0;
	if (ret_sight->exiting)
		see_exiting(region, slots, ret_sight);
}

bool sight_holds(const struct sight_process *process, unsigned device)
{
	const struct sight_held *held = &process->held[device];

	return held->context || held->module || held->data || held->offset || held->total;
}
