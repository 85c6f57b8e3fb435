/*
 * A policy that is changed while programs of the slice run. Nobody is told: whoever allocates, asks
 * for figures or gives the device work looks at the files' times now and then, and one thread reads
 * what is new. What cannot be understood, as a file that is not written to its end, changes
 * nothing, and a line says so once; so does a policy that is gone, as when the slice ends. A GPU
 * that is listed no more keeps the limits that it had.
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

static struct lock reading = LOCK_INIT; /* only ever tried */
static uint64_t looked_ns;              /* atomic */
static uint64_t stamp;                  /* under `reading`; 0: nobody has looked */

void policy_reload_forget(void)
{
	lock_init(&reading);
	looked_ns = 0;
	stamp = 0;
}

/* The GPUs of this process that the region knows: it is to say what the policy does, for others to
 * see, and the gate to go by it. */
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

/* Once as long as it stays the same: a file that was just written is read several times. */
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
	log_line(LOG_INFO, "the policy %.400s has changed, and holds from now on",
		 state_slice()->policy_dir);
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
