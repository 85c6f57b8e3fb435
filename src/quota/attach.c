/*
 * The process's part in its slice: attaching to the region, and which of the process's GPUs the
 * slice has, with their limits.
 *
 * Always: a GPU of the process has an entry in `devices` if and only if the region has the GPU and
 * the process is attached. The entries are written before `attached` is set, and then only read.
 * The caller serialises quota_attach and quota_forked.
 */
#include "account.h"

#include <string.h>

#include "allocation.h"
#include "blocks.h"
#include "compare.h"
#include "context.h"
#include "export.h"
#include "holding.h"
#include "import.h"
#include "moved.h"
#include "pool.h"
#include "variable.h"

struct region account_region = REGION_CLOSED;

static struct account_device devices[VGPU_DEVICES_MAX];
static bool attached;        /* written by quota_attach and quota_forked */
static int only_device = -1; /* likewise */

static uint64_t traced_limit[VGPU_DEVICES_MAX]; /* of devices of the region; atomic */

/* -- attaching -- */

static void set_up_cores(struct region_setup *setup, unsigned i, const struct slice_limits *limits)
{
	unsigned policy_pct = slice_policy_cores(limits);
	unsigned pct = (unsigned)slice_stricter(policy_pct, limits->env_pct);
	unsigned most_pct = (unsigned)slice_stricter(
		slice_cores_most(policy_pct, slice_policy_cores_most(limits)), limits->env_pct);

	setup->device[i].cores_pct = pct;
	setup->device[i].cores_most_pct = most_pct > pct ? most_pct : 0;
}

static void set_up_device(struct region_setup *setup, const struct slice *slice, const char *uuid,
			  int nvml_index)
{
	unsigned i = setup->device_count;
	struct slice_limits limits;

	if (i == VGPU_DEVICES_MAX || !slice_limits(slice, uuid, nvml_index, &limits))
		return;
	setup->device[i].memory_bytes = slice_memory(&limits, 0, 0);
	set_up_cores(setup, i, &limits);
	setup->device[i].burst_ns = slice_policy_burst(&limits);
	strncpy(setup->device[i].uuid, uuid, VGPU_UUID_LEN - 1);
	setup->device_count++;
}

/* The region as this process would make it: the policy's GPUs, or those that it sees. */
static void set_up(struct region_setup *setup, const struct slice *slice,
		   const struct quota_gpu *gpus, unsigned count)
{
	*setup = (struct region_setup){.priority = slice->env.priority};
	if (slice->has_policy) {
		setup->has_group = slice->policy.has_group;
		setup->group = slice->policy.group;
		for (unsigned i = 0; i < slice->policy.device_count; i++)
			set_up_device(setup, slice, slice->policy.device[i].uuid, -1);
		return;
	}
	for (unsigned i = 0; i < count; i++)
		set_up_device(setup, slice, gpus[i].uuid, gpus[i].nvml_index);
}

static bool has_limit(const struct region_setup *setup)
{
	for (unsigned i = 0; i < setup->device_count; i++)
		if (setup->device[i].memory_bytes || setup->device[i].cores_pct)
			return true;
	return false;
}

static struct account_device find_device(const struct slice *slice, const struct quota_gpu *gpu)
{
	struct account_device device = {.in_slice = false};
	int index = region_find_device(&account_region, gpu->uuid);

	if (index < 0 || !slice_limits(slice, gpu->uuid, gpu->nvml_index, &device.limits))
		return device;
	device.in_slice = true;
	device.index = (unsigned)index;
	return device;
}

int quota_attach(const struct slice *slice, const struct quota_gpu *gpus, unsigned count,
		 struct fault *fault)
{
	static struct region_setup setup; /* the caller serialises */
	struct fault why = {""};
	int error;

	if (count > VGPU_DEVICES_MAX)
		count = VGPU_DEVICES_MAX;
	set_up(&setup, slice, gpus, count);
	/* A process that brings no limit must not reset one that it finds. */
	error = region_open(slice->region_path,
			    slice->has_policy || has_limit(&setup) ? &setup : NULL, &account_region,
			    &why);
	if (error)
		return fault_set(fault, error, "%.400s (that path is %s)", why.text,
				 slice->region_from);
	error = region_claim(&account_region, fault);
	if (error) {
		region_close(&account_region);
		return error;
	}
	for (unsigned i = 0; i < count; i++)
		devices[i] = find_device(slice, &gpus[i]);
	only_device = count == 1 ? 0 : -1;
	__atomic_store_n(&attached, true, __ATOMIC_RELEASE);
	return 0;
}

void quota_forked(void)
{
	attached = false;
	memset(traced_limit, 0, sizeof(traced_limit));
	memset(devices, 0, sizeof(devices));
	region_forget(&account_region);
	account_forked();
	allocations_forked();
	contexts_forked();
	compare_forked();
	quota_pools_forked();
	holdings_forked();
	exports_forked();
	imports_forked();
	blocks_forked();
	moved_forked();
	variables_forked();
}

bool quota_attached(void)
{
	return __atomic_load_n(&attached, __ATOMIC_ACQUIRE);
}

struct region *quota_region(void)
{
	return &account_region;
}

int quota_only_device(void)
{
	return only_device;
}

/* -- devices -- */

const struct account_device *account_device(int device)
{
	if (device < 0 || device >= VGPU_DEVICES_MAX || !devices[device].in_slice)
		return NULL;
	return &devices[device];
}

int quota_cores(int device, struct quota_cores *ret_cores)
{
	const struct account_device *known = account_device(device);

	if (!known)
		return -1;
	ret_cores->policy_pct = slice_policy_cores(&known->limits);
	ret_cores->policy_most_pct = slice_policy_cores_most(&known->limits);
	ret_cores->env_pct = known->limits.env_pct;
	return (int)known->index;
}

bool quota_has_device(int device)
{
	return account_device(device) != NULL;
}

/* The first look finds the limit that the process starts with. */
static void trace_limit(const struct account_device *d, uint64_t limit)
{
	uint64_t before = __atomic_exchange_n(&traced_limit[d->index], limit, __ATOMIC_RELAXED);

	if (before != limit)
		trace_add(TRACE_LIMIT, (int)d->index, (int64_t)before, (int64_t)limit);
}

static uint64_t limit_of(const struct account_device *d)
{
	uint64_t first, now = region_limit(&account_region, d->index, &first);
	uint64_t limit = slice_memory(&d->limits, first, now);

	if (trace_wants(TRACE_REGION))
		trace_limit(d, limit);
	return limit;
}

uint64_t quota_limit(int device)
{
	const struct account_device *d = account_device(device);

	return d ? limit_of(d) : 0;
}

bool quota_is_above_limit(int device)
{
	uint64_t limit = quota_limit(device);

	return limit && quota_used(device) > limit;
}

void quota_follow_policy(int device, uint64_t before_bytes, uint64_t now_bytes)
{
	const struct account_device *d = account_device(device);

	if (d)
		region_change_limit(&account_region, d->index, before_bytes, now_bytes);
}

void quota_follow_burst(int device, uint64_t before_ns, uint64_t now_ns)
{
	const struct account_device *d = account_device(device);

	if (d && before_ns != now_ns)
		region_change_burst(&account_region, d->index, before_ns, now_ns);
}

uint64_t quota_used(int device)
{
	const struct account_device *d = account_device(device);

	return d ? region_used(&account_region, d->index) : 0;
}

void quota_note_refusal(int device)
{
	const struct account_device *d = account_device(device);

	if (d)
		region_note_refusal(&account_region, d->index);
}

void quota_trace_refused(int device, uint64_t bytes, enum trace_reason reason)
{
	const struct account_device *d = account_device(device);

	trace_add_event(&(struct trace_event){
		.kind = TRACE_REFUSED,
		.device = d ? (int)d->index : -1,
		.reason = reason,
		.a = (int64_t)bytes,
		.b = (int64_t)quota_used(device),
		.c = (int64_t)quota_limit(device),
	});
}

void quota_trace_room(int device, uint64_t room_bytes, uint64_t took_ns)
{
	const struct account_device *d = account_device(device);

	trace_add(TRACE_ROOM, d ? (int)d->index : -1, (int64_t)room_bytes, (int64_t)took_ns);
}

struct vgpu_hami_usage account_usage(int device)
{
	if (!region_is_there(&account_region))
		return (struct vgpu_hami_usage){0};
	return region_own_usage(&account_region, account_device(device)->index);
}

void quota_begin_exit(void)
{
	region_begin_exit(&account_region);
}

void quota_reap(void)
{
	region_reap(&account_region);
}

void quota_wait_dying(int device)
{
	const struct account_device *d = account_device(device);

	if (d)
		region_wait_dying(&account_region, d->index);
}

void quota_wait_guesses(int device)
{
	const struct account_device *d = account_device(device);

	if (d)
		region_wait_guesses(&account_region, d->index);
}

void quota_why_lost(struct fault *fault)
{
	region_why_lost(&account_region, fault);
}
