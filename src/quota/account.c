/*
 * Allocations against the slice.
 *
 * Device memory is charged by the granules that it occupies (blocks.h). Managed memory is not in
 * NVML's figure for a process, but it does take the device's memory: UVM fetches it in chunks of
 * 128 MiB (seen on an H200 with driver 580: one byte touched takes 128 MiB, 66 MiB take 128, 130
 * take 256). So the managed granules of the process on a device are added up, and the sum is
 * charged in whole chunks, whether touched or not: the application may touch them at any time,
 * without a call.
 *
 * Always: charged data = device granules + reservations + chunks of managed memory. If the process
 * is killed on any line, its slot dies with all of it.
 */
#include "account.h"

#include <errno.h>
#include <string.h>

#include "holding.h"
#include "lock.h"
#include "pool.h"

#define SMALL_BYTES         ((uint64_t)1 << 20) /* the driver gives bigger ones granules of their own */
#define MANAGED_CHUNK_BYTES ((uint64_t)128 << 20)

struct region account_region = REGION_CLOSED;

static struct account_device devices[VGPU_DEVICES_MAX];
static bool attached;        /* written by quota_attach and quota_forget */
static int only_device = -1; /* likewise */

static uint64_t traced_limit[VGPU_DEVICES_MAX]; /* of devices of the region; atomic */

static struct lock managed = LOCK_INIT;
static uint64_t managed_bytes[VGPU_DEVICES_MAX]; /* granules, with reservations; under `managed` */

static uint64_t managed_returns; /* atomic */

static bool spare[VGPU_DEVICES_MAX];      /* a granule is charged and in nobody's claim; atomic */
static struct lock tentative = LOCK_INIT; /* held by the thread whose claim is tentative */
static uint64_t tentatives;               /* begun and ended; written under `tentative`, atomic */
static uint64_t changes;                  /* begun: upper half; begun and not ended: lower half */
static uint64_t frees_in_part;            /* the same; atomic */

void account_begin(void)
{
	__atomic_fetch_add(&changes, ((uint64_t)1 << 32) + 1, __ATOMIC_SEQ_CST);
}

void account_end(void)
{
	__atomic_fetch_sub(&changes, 1, __ATOMIC_SEQ_CST);
}

uint64_t account_stamp(void)
{
	uint64_t seen;

	__atomic_thread_fence(__ATOMIC_ACQUIRE); /* what was read of the books before, was */
	seen = __atomic_load_n(&changes, __ATOMIC_SEQ_CST);
	return (uint32_t)seen ? UINT64_MAX : seen;
}

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

void quota_forget(void)
{
	attached = false;
	changes = 0;
	memset(spare, 0, sizeof(spare));
	memset(traced_limit, 0, sizeof(traced_limit));
	lock_init(&tentative);
	tentatives = 0;
	frees_in_part = 0;
	lock_init(&managed);
	memset(managed_bytes, 0, sizeof(managed_bytes));
	memset(devices, 0, sizeof(devices));
	region_forget(&account_region);
	contexts_forget();
	compare_forget();
	quota_pools_forget();
	holdings_forget();
	blocks_forget();
	moved_forget();
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

/* -- charging -- */

int account_charge_as(enum region_class class, int device, uint64_t bytes)
{
	const struct account_device *d = account_device(device);

	return region_charge(&account_region, d->index, class, bytes, limit_of(d));
}

void account_refund_as(enum region_class class, int device, uint64_t bytes)
{
	if (bytes)
		region_refund(&account_region, account_device(device)->index, class, bytes);
}

int account_charge(int device, uint64_t bytes)
{
	return account_charge_as(REGION_DATA, device, bytes);
}

void account_refund(int device, uint64_t bytes)
{
	account_refund_as(REGION_DATA, device, bytes);
}

static int charge_anyway(enum region_class class, int device, uint64_t bytes)
{
	if (!bytes)
		return 0;
	return region_charge(&account_region, account_device(device)->index, class, bytes, 0);
}

void account_charge_anyway(enum region_class class, int device, uint64_t bytes)
{
	charge_anyway(class, device, bytes);
}

int account_charge_held(int device, uint64_t bytes)
{
	return charge_anyway(REGION_DATA, device, bytes);
}

void account_orphan(int device, uint64_t bytes)
{
	charge_anyway(REGION_MODULE, device, bytes);
}

static uint64_t chunks_of(uint64_t bytes)
{
	return (bytes + MANAGED_CHUNK_BYTES - 1) / MANAGED_CHUNK_BYTES * MANAGED_CHUNK_BYTES;
}

int account_charge_managed(int device, uint64_t bytes)
{
	uint64_t *sum = &managed_bytes[device], more;
	int error = 0;

	lock_acquire(&managed);
	more = chunks_of(*sum + bytes) - chunks_of(*sum);
	if (more)
		error = account_charge(device, more);
	if (!error)
		*sum += bytes;
	lock_release(&managed);
	return error;
}

void account_return_managed(int device, uint64_t bytes)
{
	uint64_t *sum = &managed_bytes[device], before;

	account_managed_returning();
	lock_acquire(&managed);
	before = chunks_of(*sum);
	*sum -= bytes < *sum ? bytes : *sum;
	account_refund(device, before - chunks_of(*sum));
	lock_release(&managed);
}

void account_managed_returning(void)
{
	__atomic_fetch_add(&managed_returns, 1, __ATOMIC_SEQ_CST);
}

uint64_t account_managed_returns(void)
{
	return __atomic_load_n(&managed_returns, __ATOMIC_SEQ_CST);
}

uint64_t account_managed_charge(int device)
{
	uint64_t bytes;

	lock_acquire(&managed);
	bytes = chunks_of(managed_bytes[device]);
	lock_release(&managed);
	return bytes + pool_managed_charge(device);
}

static int charge_as(bool is_managed, int device, uint64_t bytes)
{
	return is_managed ? account_charge_managed(device, bytes) : account_charge(device, bytes);
}

static void refund_as(bool is_managed, int device, uint64_t bytes)
{
	if (is_managed)
		account_return_managed(device, bytes);
	else
		account_refund(device, bytes);
}

/* -- the spare granule -- */

static bool take_spare(int device)
{
	return __atomic_load_n(&spare[device], __ATOMIC_RELAXED) &&
	       __atomic_exchange_n(&spare[device], false, __ATOMIC_ACQUIRE);
}

/* A charged granule that was not needed. */
static void leave_spare(int device)
{
	if (__atomic_exchange_n(&spare[device], true, __ATOMIC_RELEASE))
		account_refund(device, GRANULE_BYTES); /* there is one */
}

uint64_t account_spare_charge(int device)
{
	return __atomic_load_n(&spare[device], __ATOMIC_RELAXED) ? GRANULE_BYTES : 0;
}

void account_return_spare(int device)
{
	if (take_spare(device))
		account_refund(device, GRANULE_BYTES);
}

/* -- allocations -- */

uint64_t account_tentatives(void)
{
	return __atomic_load_n(&tentatives, __ATOMIC_SEQ_CST);
}

static void begin_tentative(void)
{
	lock_acquire(&tentative);
	__atomic_fetch_add(&tentatives, 1, __ATOMIC_SEQ_CST);
}

/* Whether the driver may fit it into a granule that is held. */
static bool is_small(bool is_managed, uint64_t size_bytes)
{
	return !is_managed && size_bytes <= SMALL_BYTES;
}

static void end_tentative(const struct quota_claim *claim)
{
	if (!claim->tentative)
		return;
	__atomic_fetch_add(&tentatives, 1, __ATOMIC_SEQ_CST);
	lock_release(&tentative);
}

int quota_reserve(int device, bool is_managed, uint64_t size_bytes, struct quota_claim *ret_claim)
{
	struct quota_claim claim = {
		.device = device, .managed = is_managed, .bytes = granules_of(size_bytes)};
	bool small = is_small(is_managed, size_bytes);
	int error = 0;

	if (size_bytes > SIZE_BYTES_MOST)
		return -EDQUOT;
	account_begin();
	if (!small || !take_spare(device))
		error = charge_as(is_managed, device, claim.bytes);
	if (error == -EDQUOT && small) {
		begin_tentative();
		claim.tentative = true;
		claim.bytes = 0;
		error = 0;
	}
	if (error) {
		account_end();
		return error;
	}
	*ret_claim = claim;
	return 0;
}

static void trace_allocation(enum trace_kind kind, int device, uint64_t bytes, uint64_t charged)
{
	trace_add(kind, (int)account_device(device)->index, (int64_t)bytes, (int64_t)charged);
}

void quota_cancel(const struct quota_claim *claim)
{
	if (trace_wants(TRACE_MEMORY))
		trace_allocation(TRACE_CANCELLED, claim->device, claim->bytes, 0);
	refund_as(claim->managed, claim->device, claim->bytes);
	end_tentative(claim);
	account_end();
}

int quota_settle(const struct quota_claim *claim, const struct block *block)
{
	uint64_t taken, left;
	struct block removed;
	int error = blocks_enter(block, &taken);

	if (error)
		return -EDQUOT;
	if (taken == 0 && claim->bytes == GRANULE_BYTES && !claim->managed)
		leave_spare(claim->device);
	else if (taken < claim->bytes)
		refund_as(claim->managed, claim->device, claim->bytes - taken);
	else if (taken > claim->bytes)
		error = charge_as(claim->managed, claim->device, taken - claim->bytes);
	if (error) {
		/* Another allocation may have come into its granule meanwhile, without a charge. */
		if (blocks_remove(block->address, &removed, &left) && left < taken)
			account_charge_held(claim->device, taken - left);
		return -EDQUOT;
	}
	if (trace_wants(TRACE_MEMORY))
		trace_allocation(TRACE_ALLOCATED, claim->device, block->size_bytes, taken);
	end_tentative(claim);
	account_end();
	return 0;
}

bool quota_charge_of(uint64_t address, int *ret_device, uint64_t *ret_bytes)
{
	struct block block;

	if (!blocks_find(address, &block, ret_bytes))
		return false;
	*ret_device = block.device;
	return !block.managed;
}

uint64_t account_frees_in_part(void)
{
	return __atomic_load_n(&frees_in_part, __ATOMIC_SEQ_CST);
}

static void begin_free(struct quota_release *release)
{
	release->in_part = release->bytes < blocks_span(&release->block);
	if (release->in_part)
		__atomic_fetch_add(&frees_in_part, ((uint64_t)1 << 32) + 1, __ATOMIC_SEQ_CST);
}

static void end_free(const struct quota_release *release)
{
	if (release->in_part)
		__atomic_fetch_sub(&frees_in_part, 1, __ATOMIC_SEQ_CST);
}

bool quota_free_begin(uint64_t address, struct quota_release *ret_release)
{
	struct quota_release release;

	if (!blocks_known(address)) /* most often a pool's: not worth a stamp */
		return false;
	account_begin();
	if (!blocks_remove(address, &release.block, &release.bytes)) {
		account_end();
		return false;
	}
	begin_free(&release);
	*ret_release = release;
	return true;
}

void quota_free_commit(const struct quota_release *release)
{
	end_free(release);
	if (release->block.managed)
		moved_end(release->block.address);
	if (release->bytes) {
		refund_as(release->block.managed, release->block.device, release->bytes);
		account_return_spare(release->block.device);
	}
	if (trace_wants(TRACE_MEMORY))
		trace_allocation(TRACE_FREED, release->block.device, release->block.size_bytes,
				 release->bytes);
	account_end();
}

void quota_free_postpone(void)
{
	account_end(); /* the charge stays */
}

void quota_free_orphan(const struct quota_release *release)
{
	const struct block *block = &release->block;

	account_begin();
	end_free(release);
	if (!block->managed) /* which no comparison would find gone */
		account_orphan(block->device, release->bytes);
	else
		moved_end(block->address);
	refund_as(block->managed, block->device, release->bytes);
	account_end();
}

void quota_free_resume(void)
{
	account_begin();
}

void quota_free_undo(const struct quota_release *release)
{
	uint64_t taken;

	/* Its charge is still there. But other allocations may have come to its granules meanwhile
	 * and been charged for them, or gone from them and given the charge back. */
	if (blocks_enter(&release->block, &taken) == 0) {
		if (taken < release->bytes)
			refund_as(release->block.managed, release->block.device,
				  release->bytes - taken);
		else if (!release->block.managed)
			account_charge_held(release->block.device, taken - release->bytes);
	}
	end_free(release);
	account_end();
}
