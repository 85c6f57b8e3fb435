/*
 * A policy may be changed while programs of the slice run. No program is notified. A thread that
 * allocates, asks for figures or submits work looks at the times of the policy's files from time to
 * time. One thread reads files that have changed. A policy that cannot be parsed, such as a file
 * that is not yet written to its end, changes no limit, and one line says so. The same holds for a
 * policy that was removed, as at the end of the slice. A GPU that the policy stops to list keeps
 * its limits.
 */
#include "policy_reload.h"

#include <errno.h>
#include <string.h>

#include "clock.h"
#include "launch.h"
#include "lock.h"
#include "log.h"
#include "pace.h"
#include "quota.h"
#include "state.h"

static struct lock reading = LOCK_INIT; /* a thread never waits for it: lock_try */
static uint64_t looked_ns;              /* atomic */
static uint64_t stamp;                  /* under `reading`; 0: no thread has looked yet */

void policy_reload_forked(void)
{
	lock_init(&reading);
	looked_ns = 0;
	stamp = 0;
}

/* Gives the new limits to the pacer and to the region, where other programs see them, for each GPU
 * of this process that the region has. */
static void tell(const struct policy *before, const struct policy *now)
{
	char uuid[VGPU_UUID_LEN];

	for (int device = 0; device < VGPU_DEVICES_MAX; device++) {
		bool known = quota_has_device(device) && state_device_uuid(device, uuid);
		int at = known ? policy_find(now, uuid) : -1;
		int was = known ? policy_find(before, uuid) : -1;

		if (at < 0 || was < 0)
			continue;
		pace_set_policy(device, now->device[at].cores_pct, now->device[at].cores_most_pct);
		quota_follow_policy(device, before->device[was].memory_bytes,
				    now->device[at].memory_bytes);
		quota_follow_burst(device, before->device[was].burst_ns, now->device[at].burst_ns);
	}
}

/* Whether slice_renew has left the policy as it was. */
static bool is_same(const struct policy *before, const struct policy *now)
{
	for (unsigned i = 0; i < now->device_count; i++) {
		const struct policy_device *then = &before->device[i], *device = &now->device[i];

		if (device->memory_bytes != then->memory_bytes ||
		    device->cores_pct != then->cores_pct ||
		    device->cores_most_pct != then->cores_most_pct ||
		    device->burst_ns != then->burst_ns)
			return false;
	}
	return policy_gang_equals(&before->gang, &now->gang);
}

/* Prints the fault once as long as it stays the same: a file is read again a few times after it was
 * written. */
static void say(const struct fault *fault)
{
	static struct fault said; /* under `reading` */

	if (strcmp(said.text, fault->text) == 0)
		return;
	said = *fault;
	if (fault->text[0])
		log_line(LOG_WARN, "%s; until that is mended, the limits stay as they were",
			 fault->text);
}

static void look(void)
{
	static struct policy policy, old; /* under `reading` */
	uint64_t now = slice_policy_stamp(state_slice()), before = stamp;
	struct fault fault = {""};

	stamp = now;
	if (now == before)
		return;
	if (slice_read_policy(state_slice(), &policy, &fault) != 0) {
		say(&fault);
		return;
	}
	say(&(struct fault){""});
	old = state_slice()->policy;
	state_renew_slice(&policy);
	tell(&old, &policy);
	if (!is_same(&old, &state_slice()->policy))
		log_line(LOG_INFO, "the policy %.400s has changed, and holds from now on",
			 slice_policy_place(state_slice()));
	if (!policy_gang_equals(&policy.gang, &old.gang))
		launch_set_gang();
}

void policy_reload_look(void)
{
	uint64_t now_ns = clock_coarse_ns(), then_ns;
	int saved;

	then_ns = __atomic_load_n(&looked_ns, __ATOMIC_RELAXED);
	if (now_ns - then_ns < LIMITS_NS || !state_slice()->has_policy || !lock_try(&reading))
		return;
	__atomic_store_n(&looked_ns, now_ns, __ATOMIC_RELAXED);
	saved = errno; /* files are opened */
	look();
	errno = saved;
	lock_release(&reading);
}
