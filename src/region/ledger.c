/*
 * The ledger: the bytes that each slot holds of each device, by class, and that the slice holds in
 * all.
 *
 * How it works. Each change here sets one class of our own slot under the lock, and with it the
 * slot's total and the device's total (set_class_locked). The one other change, a charge that moves
 * between slots, is in share_table.c, and leaves the device's total as it is. A charge is refused
 * if the device's total would exceed the limit. Before a refusal the lock is released, the slots of
 * dead processes are cleared, and the charge is tried once more.
 *
 * What always holds, whenever the lock is free. A slot's total is the sum of its classes. A
 * device's `used` is the sum of the totals of the slots whose status is not 0, and of the exiting
 * words of processes that have begun to exit. To raise a class, `used` is stored first and the
 * class last; to lower it, the other way round. So a reader without the lock, in the middle of a
 * change, sees a total that is too high rather than too low. A slot's total is never below its
 * classes.
 *
 * The lock protects all of it except what is late. A refund must not fail, and a charge of memory
 * that the device holds already must not fail. If the lock cannot be taken for
 * REGION_LOCK_PATIENCE_NS, the refund is added to region->late, the charge to region->late_charges,
 * and the next thread of ours that gets the lock makes it first. Charges come before refunds, so
 * memory that goes from one class to another is counted all the time. Until then the slice seems to
 * hold more than it does, or less by such a charge. (A change of the slot without the lock would
 * race with a thread of ours that has the lock.)
 *
 * If the process is killed on any line, its slot counts until the device has its memory back
 * (life.c). The process that takes the lock over computes the totals again from the classes. Late
 * changes of the dead process are lost, and end with its slot.
 *
 * What it is not: a record of what the driver does. The component quota decides what is charged.
 */
#include <errno.h>

#include "assertion.h"
#include "region_internal.h"
#include "trace.h"

static uint64_t *class_of(struct vgpu_hami_usage *usage, enum region_class class)
{
	switch (class) {
	case REGION_CONTEXT:
		return &usage->context;
	case REGION_MODULE:
		return &usage->module;
	case REGION_DATA:
		return &usage->data;
	case REGION_OFFSET:
		break;
	}
	return &usage->offset;
}

/* The bytes of our slot that NVML's figure for the process may have: all classes except `offset`.
 */
static uint64_t counted_locked(const struct region *region, unsigned device)
{
	const struct vgpu_hami_usage *usage = &region->file->hami.slots[region->slot].used[device];

	return REGION_LOAD(usage->context) + REGION_LOAD(usage->module) + REGION_LOAD(usage->data);
}

/* This is one load if no thread of ours measures the peak. */
static inline void note_peak_locked(struct region *region, unsigned device)
{
	uint64_t peak = REGION_LOAD(region->peak[device]);

	if (__builtin_expect(peak != 0, 0) && counted_locked(region, device) >= peak)
		REGION_STORE(region->peak[device], counted_locked(region, device) + 1);
}

/* Sets a class of our slot to `bytes`, and the totals accordingly. room_locked sees to it that no
 * sum overflows. */
static void set_class_locked(struct region *region, unsigned device, enum region_class class,
			     uint64_t bytes)
{
	struct vgpu_hami_usage *usage = &region->file->hami.slots[region->slot].used[device];
	uint64_t *used = &region->file->own.device[device].used;
	uint64_t *held = class_of(usage, class);
	uint64_t was = REGION_LOAD(*held);

	ASSERT(region->slot >= 0 && device < VGPU_DEVICES_MAX);
	if (__builtin_expect(REGION_LOAD(region->exiting), 0)) {
		region_set_exiting_locked(region, device, class, bytes);
		return;
	}
	if (bytes >= was) {
		REGION_STORE(*used, REGION_LOAD(*used) + (bytes - was));
		region_step(raise_used);
		REGION_PUBLISH(usage->total, REGION_LOAD(usage->total) + (bytes - was));
		region_step(raise_total);
		/* The three stores pair with readers, which load the class, then the total, then
		 * `used`. */
		REGION_PUBLISH(*held, bytes);
		region_step(raise_class);
		note_peak_locked(region, device);
	} else {
		REGION_STORE(*held, bytes);
		region_step(lower_class);
		REGION_PUBLISH(usage->total, region_less(REGION_LOAD(usage->total), was - bytes));
		region_step(lower_total);
		REGION_PUBLISH(*used, region_less(REGION_LOAD(*used), was - bytes));
		region_step(lower_used);
	}
}

static uint64_t held_locked(const struct region *region, unsigned device, enum region_class class)
{
	if (__builtin_expect(REGION_LOAD(region->exiting), 0))
		return region_exiting_class(region, device, class);
	return REGION_LOAD(*class_of(&region->file->hami.slots[region->slot].used[device], class));
}

static void refund_locked(struct region *region, unsigned device, enum region_class class,
			  uint64_t bytes)
{
	set_class_locked(region, device, class,
			 region_less(held_locked(region, device, class), bytes));
}

/* -- late changes ----------------------------------------------------------------------------- */

/* How much more the slice may hold of the device; without a limit, as much as can be counted. */
static uint64_t room_locked(const struct region *region, unsigned device, uint64_t limit_bytes)
{
	return region_less(limit_bytes ? limit_bytes : UINT64_MAX,
			   REGION_LOAD(region->file->own.device[device].used));
}

static void charge_held_locked(struct region *region, unsigned device, enum region_class class,
			       uint64_t bytes)
{
	uint64_t room = room_locked(region, device, 0);

	set_class_locked(region, device, class,
			 held_locked(region, device, class) + (bytes < room ? bytes : room));
}

static void put_down_late(struct region *region, uint64_t *late, uint64_t bytes)
{
	__atomic_fetch_add(late, bytes, __ATOMIC_RELEASE); /* pairs with take_late */
	REGION_PUBLISH(region->is_late, 1); /* pairs with the exchange in settle_late_locked */
}

/* A thread that sees a refund also sees the charges that the same thread put down before it. */
static uint64_t take_late(uint64_t *late)
{
	return __atomic_exchange_n(late, 0, __ATOMIC_ACQUIRE);
}

__attribute__((noinline, cold)) static void settle_late_locked(struct region *region)
{
	uint64_t refunds[VGPU_DEVICES_MAX][REGION_CLASSES];

	if (!__atomic_exchange_n(&region->is_late, 0, __ATOMIC_ACQUIRE))
		return;
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		for (unsigned class = 0; class < REGION_CLASSES; class ++)
			refunds[device][class] = take_late(&region->late[device][class]);
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		for (unsigned class = 0; class < REGION_CLASSES; class ++) {
			uint64_t bytes = take_late(&region->late_charges[device][class]);

			if (bytes)
				charge_held_locked(region, device, class, bytes);
		}
	region_share_settle_late_locked(region);
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		for (unsigned class = 0; class < REGION_CLASSES; class ++)
			if (refunds[device][class])
				refund_locked(region, device, class, refunds[device][class]);
}

/* Takes the lock, to change our slot. */
static int lock_slot(struct region *region)
{
	int error = region_lock(region);

	if (!error && REGION_LOAD(region->is_late))
		settle_late_locked(region);
	return error;
}

/* For share.c and exit.c. The static functions above stay small, so that the compiler inlines them
 * here. */
int region_lock_slot(struct region *region)
{
	int error = region_watch(region);

	return error ? error : lock_slot(region);
}

void region_settle_late_locked(struct region *region)
{
	settle_late_locked(region);
}

void region_refund_locked(struct region *region, unsigned device, enum region_class class,
			  uint64_t bytes)
{
	refund_locked(region, device, class, bytes);
}

void region_charge_locked(struct region *region, unsigned device, enum region_class class,
			  uint64_t bytes)
{
	set_class_locked(region, device, class, held_locked(region, device, class) + bytes);
}

/* 0, or the error for which nothing can be charged there, whatever the limit. */
static int check_target(struct region *region, unsigned device, enum region_class class)
{
	int error = region_watch(region);

	if (error)
		return error;
	if (region->slot < 0)
		return -EBADF;
	if (device >= region_devices_in_use(region->file) || (unsigned)class >= REGION_CLASSES)
		return region_is_as_opened(region) ? -EINVAL : region_mark_lost(region, -EUCLEAN);
	return 0;
}

/* -- charges ---------------------------------------------------------------------------------- */

struct request {
	unsigned device;
	enum region_class class;
	uint64_t least_bytes, most_bytes, limit_bytes;
};

static inline __attribute__((always_inline)) int
try_charge(struct region *region, const struct request *request, uint64_t *ret_bytes)
{
	uint64_t bytes = request->most_bytes, room;
	int error = lock_slot(region);

	if (error)
		return error;
	room = room_locked(region, request->device, request->limit_bytes);
	if (bytes > room)
		bytes = room;
	if (bytes < request->least_bytes) {
		region_unlock(region);
		return -EDQUOT;
	}
	set_class_locked(region, request->device, request->class,
			 held_locked(region, request->device, request->class) + bytes);
	region_unlock(region);
	*ret_bytes = bytes;
	return 0;
}

__attribute__((noinline, cold)) static int
charge_after_reaping(struct region *region, const struct request *request, uint64_t *ret_bytes)
{
	if (region_slots_in_use(region->file) < 2)
		return -EDQUOT; /* there is no other process */
	if (region_reap(region) == -ETIMEDOUT)
		return -ETIMEDOUT;
	return try_charge(region, request, ret_bytes);
}

static enum trace_reason reason_of(int error)
{
	switch (error) {
	case 0:
		return TRACE_NO_REASON;
	case -EDQUOT:
		return TRACE_REASON_QUOTA;
	case -ETIMEDOUT:
		return TRACE_REASON_LOCK;
	case -ESTALE:
	case -EUCLEAN:
		return TRACE_REASON_LOST;
	default:
		return TRACE_REASON_OTHER;
	}
}

__attribute__((noinline, cold)) static void
trace_charge(const struct region *region, const struct request *request, int error, uint64_t bytes)
{
	enum trace_reason reason = reason_of(error);
	unsigned device = request->device;
	bool known = device < VGPU_DEVICES_MAX && reason != TRACE_REASON_LOST;

	trace_add_event(&(struct trace_event){
		.kind = error ? TRACE_CHARGE_FAILED : TRACE_CHARGE,
		.device = known ? (int)device : -1,
		.reason = reason,
		.class = 1 + request->class,
		.a = (int64_t)(error ? request->least_bytes : bytes),
		.b = known ? (int64_t)REGION_LOAD(region->file->own.device[device].used) : 0,
		.c = (int64_t)request->limit_bytes,
	});
}

__attribute__((noinline, cold)) static void
trace_refund(const struct region *region, unsigned device, enum region_class class, uint64_t bytes)
{
	trace_add_event(&(struct trace_event){
		.kind = TRACE_REFUND,
		.device = (int)device,
		.class = 1 + class,
		.a = (int64_t)bytes,
		.b = (int64_t)REGION_LOAD(region->file->own.device[device].used),
	});
}

static inline __attribute__((always_inline)) int
charge(struct region *region, const struct request *request, uint64_t *ret_bytes)
{
	int error = check_target(region, request->device, request->class);

	if (!error)
		error = try_charge(region, request, ret_bytes);
	if (__builtin_expect(error == -EDQUOT, 0))
		error = charge_after_reaping(region, request, ret_bytes);
	if (trace_wants(TRACE_MEMORY))
		trace_charge(region, request, error, error ? 0 : *ret_bytes);
	return error;
}

int region_charge(struct region *region, unsigned device, enum region_class class, uint64_t bytes,
		  uint64_t limit_bytes)
{
	struct request request = {device, class, bytes, bytes, limit_bytes};
	uint64_t charged;

	return charge(region, &request, &charged);
}

int region_charge_range(struct region *region, unsigned device, enum region_class class,
			uint64_t least_bytes, uint64_t most_bytes, uint64_t limit_bytes,
			uint64_t *ret_bytes)
{
	struct request request = {device, class, least_bytes, most_bytes, limit_bytes};

	if (least_bytes > most_bytes)
		return -EINVAL;
	return charge(region, &request, ret_bytes);
}

void region_charge_held(struct region *region, unsigned device, enum region_class class,
			uint64_t bytes)
{
	struct request request = {device, class, bytes, bytes, 0};
	int error = check_target(region, device, class);

	if (!error && lock_slot(region) != 0) {
		put_down_late(region, &region->late_charges[device][class], bytes);
		error = -ETIMEDOUT;
	} else if (!error) {
		charge_held_locked(region, device, class, bytes);
		region_unlock(region);
	}
	if (trace_wants(TRACE_MEMORY))
		trace_charge(region, &request, error, error ? 0 : bytes);
}

void region_refund(struct region *region, unsigned device, enum region_class class, uint64_t bytes)
{
	if (check_target(region, device, class) != 0)
		return;
	if (lock_slot(region) != 0) {
		put_down_late(region, &region->late[device][class], bytes);
		return;
	}
	refund_locked(region, device, class, bytes);
	region_unlock(region);
	if (trace_wants(TRACE_MEMORY))
		trace_refund(region, device, class, bytes);
}

/* -- figures ---------------------------------------------------------------------------------- */

int region_peak_begin(struct region *region, unsigned device)
{
	int error = check_target(region, device, REGION_DATA);

	if (!error)
		error = lock_slot(region);
	if (error)
		return error;
	REGION_STORE(region->peak[device], counted_locked(region, device) + 1);
	region_unlock(region);
	return 0;
}

uint64_t region_peak(const struct region *region, unsigned device)
{
	uint64_t peak = device < VGPU_DEVICES_MAX ? REGION_LOAD(region->peak[device]) : 0;

	return peak ? peak - 1 : 0;
}

void region_peak_end(struct region *region, unsigned device)
{
	if (device < VGPU_DEVICES_MAX)
		REGION_STORE(region->peak[device], 0);
}

uint64_t region_used(struct region *region, unsigned device)
{
	if (device >= VGPU_DEVICES_MAX || region_watch(region) != 0)
		return 0;
	return REGION_LOAD(region->file->own.device[device].used);
}

uint64_t region_shown(struct region *region, unsigned device)
{
	uint64_t used = region_used(region, device), gone = 0;

	if (device >= VGPU_DEVICES_MAX || region_watch(region) != 0)
		return 0;
	for (int slot = -1; (slot = region_next_slot(region->file, slot)) >= 0;)
		if (region_slot_is_exiting(region->file, (unsigned)slot) &&
		    region_slot_is_over(region, (unsigned)slot))
			gone += region_slot_bytes(region->file, (unsigned)slot, device);
	return region_less(used, gone);
}

uint64_t region_limit(struct region *region, unsigned device, uint64_t *ret_first)
{
	*ret_first = 0;
	if (device >= VGPU_DEVICES_MAX || region_watch(region) != 0)
		return 0;
	*ret_first = REGION_LOAD(region->file->own.device[device].first_limit);
	return REGION_LOAD(region->file->hami.limit[device]);
}

bool region_change_limit(struct region *region, unsigned device, uint64_t before, uint64_t now)
{
	if (device >= VGPU_DEVICES_MAX || !region->writable || region_watch(region) != 0)
		return false;
	return __atomic_compare_exchange_n(&region->file->hami.limit[device], &before, now, false,
					   __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

bool region_change_burst(struct region *region, unsigned device, uint64_t before_ns,
			 uint64_t now_ns)
{
	if (device >= VGPU_DEVICES_MAX || !region->writable || region_watch(region) != 0)
		return false;
	return __atomic_compare_exchange_n(&region->file->own.device[device].burst_ns, &before_ns,
					   now_ns, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void region_note_refusal(struct region *region, unsigned device)
{
	if (device < VGPU_DEVICES_MAX && region->writable && region_watch(region) == 0)
		__atomic_add_fetch(&region->file->own.device[device].bucket.refused, 1,
				   __ATOMIC_RELAXED);
}

void region_set_limits(struct region *region, unsigned device, const struct region_limits *limits)
{
	if (device >= VGPU_DEVICES_MAX || region_watch(region) != 0)
		return;
	REGION_STORE(region->file->hami.limit[device], limits->memory_bytes);
	/* Some programs read 0 as "see the environment". All read 100 as no limit. */
	REGION_STORE(region->file->hami.sm_limit[device],
		     limits->cores_pct ? limits->cores_pct : 100);
	REGION_STORE(region->file->turn[device].cores_most, limits->cores_most_pct);
	REGION_STORE(region->file->own.device[device].burst_ns, limits->burst_ns);
}

struct vgpu_hami_usage region_own_usage(const struct region *region, unsigned device)
{
	struct vgpu_hami_usage own = {0};
	const struct vgpu_hami_usage *usage;

	if (region->slot < 0 || device >= VGPU_DEVICES_MAX)
		return own;
	usage = &region->file->hami.slots[region->slot].used[device];
	if (!REGION_SEE(region->exiting)) {
		own.context = REGION_SEE(usage->context);
		own.module = REGION_SEE(usage->module);
		own.data = REGION_SEE(usage->data);
		own.offset = REGION_SEE(usage->offset);
		own.total = REGION_SEE(usage->total);
	}
	/* `exiting` is set before the classes are emptied, so this second read sees an exit that
	 * emptied one meanwhile. */
	if (REGION_SEE(region->exiting)) {
		own.context = region_exiting_class(region, device, REGION_CONTEXT);
		own.module = region_exiting_class(region, device, REGION_MODULE);
		own.data = region_exiting_class(region, device, REGION_DATA);
		own.offset = region_exiting_class(region, device, REGION_OFFSET);
		own.total = region_sum_classes(&own);
	}
	return own;
}
