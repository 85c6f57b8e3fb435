#include "gang_time.h"

#include "bucket.h"
#include "constants.h"
#include "gang_table.h"
#include "holder.h"
#include "relaxed.h"

#define ALL_DEVICES UINT32_MAX

#define BACK_NS                                                                           \
	(20 * NS_PER_MS) /* less than that is a thread that read the clock before another \
			  */

/* -- the gang's time -------------------------------------------------------------------------- */

static void count_used(const struct gang *gang, uint64_t now_ns)
{
	uint64_t then_ns = RELAXED_LOAD(gang->words->counted);
	uint32_t progress;
	bool any = gang_table_any_in_flight(gang, NULL, now_ns, &progress);

	if (now_ns <= then_ns && then_ns - now_ns < BACK_NS)
		return;
	if (!RELAXED_CAS(gang->words->counted, then_ns, now_ns))
		return; /* another thread counts that time */
	if (then_ns && any)
		RELAXED_ADD(gang->words->used_ns, since(now_ns, then_ns));
}

/* -- what each device pays -------------------------------------------------------------------- */

/* Until when the device has paid for its work in flight. */
static uint64_t *paid_until(const struct gang *gang, uint32_t device)
{
	switch (gang->kind) {
	case GANG_OF_DEVICE:
		return &gang->words->counted;
	case GANG_OF_SLICES:
		return &gang->turns[device].joint_until;
	case GANG_OF_SLICE:
		break;
	}
	return &gang->devices[device].gang_until;
}

/* The most debt that the device may have after the charge. A host that waited for its device for
 * long has not refilled the bucket meanwhile: the time that is due to it comes on top. */
static int64_t least_ns(const struct gang *gang, uint32_t device, uint64_t now_ns)
{
	unsigned pct = gang->quota ? gang->quota(device) : 0;

	if (gang->kind == GANG_OF_DEVICE) /* nothing spins there */
		return INT64_MIN / 2;

	return GANG_DEBT_NS - (pct ? bucket_due_ns(&gang->devices[device].bucket, pct, now_ns) : 0);
}

/* used_ns may be negative: the device gets that back. */
static void pay(const struct gang *gang, uint32_t device, int64_t used_ns, uint64_t now_ns)
{
	struct vgpu_region_bucket *bucket = &gang->devices[device].bucket;

	if (!used_ns)
		return;
	used_ns = bucket_charge_used(bucket, used_ns, least_ns(gang, device, now_ns));
	if (gang->kind == GANG_OF_SLICES)
		RELAXED_ADD(bucket->joint_charged, (uint64_t)used_ns);
}

/* The time since the device last paid. It counts as paid from now on. */
static uint64_t unpaid_ns(const struct gang *gang, uint32_t device, uint64_t now_ns)
{
	uint64_t *until = paid_until(gang, device), then_ns = RELAXED_LOAD(*until);

	if (now_ns <= then_ns && then_ns - now_ns < BACK_NS)
		return 0;
	if (!RELAXED_CAS(*until, then_ns, now_ns) || !then_ns)
		return 0;
	return since(now_ns, then_ns);
}

/* Whether any member of the process's slice has work in flight on the device. */
static bool is_in_use(const struct gang *gang, uint32_t device, uint64_t now_ns)
{
	struct vgpu_region_member *member;

	for (unsigned i = 0; (member = gang_table_next(gang, &i));)
		if (gang_table_own_device(gang, member) == device &&
		    gang_table_is_in_flight(gang, member, now_ns))
			return true;
	return false;
}

/* Each device of the process's slice pays for the time since it last paid, if it was in use. */
static void charge(const struct gang *gang, uint64_t now_ns)
{
	const struct vgpu_region_member *member;
	uint32_t done = 0;

	for (unsigned i = 0; (member = gang_table_next(gang, &i));) {
		uint32_t device = gang_table_own_device(gang, member);
		uint64_t ns;
		bool used;

		if (device == VGPU_DEVICES_MAX || done >> device & 1)
			continue;
		done |= 1u << device;
		used = is_in_use(gang, device, now_ns);
		ns = unpaid_ns(gang, device, now_ns);
		if (used)
			pay(gang, device, (int64_t)ns, now_ns);
	}
}

/* The process that has counted the time may be of another slice, so each process charges. */
void gang_count(const struct gang *gang, uint64_t now_ns)
{
	if (gang->kind != GANG_OF_DEVICE)
		count_used(gang, now_ns);
	charge(gang, now_ns);
}

/* -- what members have in flight --------------------------------------------------------------- */

int64_t gang_paid_ns(const struct gang *gang, const struct gang_member *self)
{
	const struct vgpu_region_bucket *bucket = &gang->devices[self->device].bucket;

	return RELAXED_LOAD(bucket->charged) + RELAXED_LOAD(bucket->corrected);
}

/* The member looks, and has work in flight. */
static void note_paid(const struct gang *gang, struct gang_member *self)
{
	RELAXED_STORE(self->used_ns, RELAXED_LOAD(gang->words->used_ns));
	RELAXED_STORE(self->paid_until_ns, RELAXED_LOAD(*paid_until(gang, self->device)));
	RELAXED_STORE(self->paid_ns, gang_paid_ns(gang, self));
}

/* All that the bucket was charged since the member's last look, also for other members' work. */
static int64_t charged_since_ns(const struct gang *gang, const struct gang_member *self)
{
	return gang_paid_ns(gang, self) - RELAXED_LOAD(self->paid_ns);
}

/* The part of that charge that counts as paid for the time until until_ns, in which the member had
 * work in flight. The charge is spread evenly over the time since the look. */
static int64_t charged_until_ns(const struct gang *gang, const struct gang_member *self,
				uint64_t until_ns, uint64_t now_ns)
{
	uint64_t from_ns = RELAXED_LOAD(self->paid_until_ns);
	uint64_t use_ns = since(until_ns, from_ns), all_ns = since(now_ns, from_ns);
	int64_t charged_ns = charged_since_ns(gang, self);

	if (charged_ns <= 0 || use_ns >= all_ns)
		return charged_ns > 0 ? charged_ns : 0;
	return (int64_t)((double)charged_ns * (double)use_ns / (double)all_ns);
}

/* The unpaid part of the time until until_ns, in which the member had work in flight. */
static int64_t owed_ns(const struct gang *gang, const struct gang_member *self, uint64_t until_ns,
		       uint64_t now_ns)
{
	return (int64_t)since(until_ns, RELAXED_LOAD(self->paid_until_ns)) -
	       charged_until_ns(gang, self, until_ns, now_ns);
}

static bool is_stale(const struct gang_member *self, uint64_t now_ns)
{
	return since(now_ns, RELAXED_LOAD(self->entry->seen)) >= GANG_STALE_NS;
}

/* Others took the member to be idle, because it did not look, but it had work in flight until
 * until_ns. It pays for the time that was not charged, and gets nothing back. The member is idle
 * then. False: it had no work in flight. */
static bool pay_late(const struct gang *gang, struct gang_member *self, uint64_t until_ns,
		     uint64_t now_ns)
{
	struct vgpu_region_member *member = self->entry;
	uint32_t busy = VGPU_MEMBER_IN_FLIGHT;
	uint64_t use_ns, used_ns;
	int64_t charged_ns;

	if (!RELAXED_CAS(member->in_flight, busy, 0))
		return false;
	gang_count(gang, now_ns);
	use_ns = since(until_ns, RELAXED_LOAD(self->paid_until_ns));
	used_ns = since(RELAXED_LOAD(gang->words->used_ns), RELAXED_LOAD(self->used_ns));
	if (gang->kind != GANG_OF_DEVICE)
		RELAXED_ADD(gang->words->used_ns, since(use_ns, used_ns));
	charged_ns = charged_since_ns(gang, self);
	pay(gang, self->device, (int64_t)since(use_ns, charged_ns > 0 ? (uint64_t)charged_ns : 0),
	    now_ns);
	return true;
}

void gang_is_busy(const struct gang *gang, struct gang_member *self, uint64_t now_ns)
{
	struct vgpu_region_member *member = self->entry;

	if (is_stale(self, now_ns) || gang_table_is_overdue(gang, member, now_ns))
		pay_late(gang, self, now_ns, now_ns);
	RELAXED_STORE(member->seen, now_ns);
	if (gang->kind == GANG_OF_DEVICE)
		RELAXED_STORE(member->expected, RELAXED_LOAD(self->expects_ns));
	if (RELAXED_LOAD(member->in_flight) == VGPU_MEMBER_IN_FLIGHT) {
		note_paid(gang, self);
		return;
	}
	gang_count(gang, now_ns);
	RELAXED_STORE(member->began, now_ns);
	note_paid(gang, self);
	/* Pairs with gang_is_idle's acquire: another thread that sees the end sees what was noted.
	 */
	__atomic_store_n(&member->in_flight, VGPU_MEMBER_IN_FLIGHT, __ATOMIC_RELEASE);
}

/* For how long no member has had anything in flight, of the time that ends now. That is from the
 * last end of work, ended_ns or later, to the first begin of work in flight. device: if it is not
 * ALL_DEVICES, only the members of the process's slice on that device count. */
static uint64_t idle_ns(const struct gang *gang, uint32_t device, uint64_t ended_ns,
			uint64_t now_ns)
{
	struct vgpu_region_member *member;
	uint64_t began_ns = now_ns;

	for (unsigned i = 0; (member = gang_table_next(gang, &i));) {
		uint64_t end_ns, begin_ns;

		if (device != ALL_DEVICES && gang_table_own_device(gang, member) != device)
			continue;
		end_ns = RELAXED_LOAD(member->ended);
		begin_ns = RELAXED_LOAD(member->began);
		ended_ns = end_ns > ended_ns ? end_ns : ended_ns;
		if (begin_ns < began_ns && gang_table_is_in_flight(gang, member, now_ns))
			began_ns = begin_ns;
	}
	return since(began_ns, ended_ns);
}

/* Work of others that began later came after the member's. */
uint64_t gang_others_ended_ns(const struct gang *gang, const struct gang_member *self)
{
	uint64_t last_ns = RELAXED_LOAD(self->entry->began), began_ns = last_ns;
	const struct vgpu_region_member *member;

	for (unsigned i = 0; (member = gang_table_next(gang, &i));)
		if (member != self->entry && RELAXED_LOAD(member->began) <= began_ns &&
		    RELAXED_LOAD(member->ended) > last_ns)
			last_ns = RELAXED_LOAD(member->ended);
	return last_ns > began_ns ? last_ns : 0;
}

/*
 * The member's work has ended. Others may have counted the member as busy until now, and charged
 * its device. The device gets back the charged time that no member used.
 *
 *     due = use - charged, but at least unpaid - idle, and at most unpaid
 *
 * The device has been in use for `use` since the last look, and was charged `charged` meanwhile. Of
 * the time that ends now, no process has counted `unpaid`, and no member used `idle`. The lower
 * bound is due if all time that was counted was charged. Where a charge ended at the most debt,
 * more is due: time that was not charged is not given back. Others change the bucket as well, so
 * the two bounds hold in any case. But no process counted overdue work. So for overdue work, at
 * most the unpaid part of `use` is due.
 */
static void end_work(const struct gang *gang, struct gang_member *self, uint64_t ended_ns,
		     uint64_t now_ns)
{
	bool overdue = gang_table_is_overdue(gang, self->entry, now_ns);
	int64_t unpaid, idle, due, most;

	if (gang->kind != GANG_OF_DEVICE)
		count_used(gang, now_ns);
	unpaid = (int64_t)unpaid_ns(gang, self->device, now_ns);
	RELAXED_STORE(self->entry->in_flight, 0);
	if (gang->kind != GANG_OF_DEVICE)
		RELAXED_SUB(gang->words->used_ns, idle_ns(gang, ALL_DEVICES, ended_ns, now_ns));
	idle = (int64_t)idle_ns(gang, self->device, ended_ns, now_ns);
	due = (int64_t)(now_ns - RELAXED_LOAD(self->paid_until_ns)) - idle -
	      charged_since_ns(gang, self);
	most = overdue ? owed_ns(gang, self, ended_ns, now_ns) : unpaid;
	if (most < unpaid)
		most = unpaid;
	if (due > most)
		due = most;
	if (due < unpaid - idle)
		due = unpaid - idle;
	pay(gang, self->device, due, now_ns);
}

void gang_is_idle(const struct gang *gang, struct gang_member *self, uint64_t ended_ns,
		  uint64_t now_ns)
{
	struct vgpu_region_member *member = self->entry;
	bool late = is_stale(self, now_ns) && !gang_table_is_overdue(gang, member, now_ns) &&
		    pay_late(gang, self, ended_ns, now_ns);

	RELAXED_STORE(member->seen, now_ns);
	if (!late && __atomic_load_n(&member->in_flight, __ATOMIC_ACQUIRE) != VGPU_MEMBER_IN_FLIGHT)
		return;
	RELAXED_STORE(member->ended, ended_ns);
	if (!late)
		end_work(gang, self, ended_ns, now_ns);
	RELAXED_ADD(member->progress, 1);
	if (gang->kind == GANG_OF_DEVICE)
		holder_release(gang, self);
}
