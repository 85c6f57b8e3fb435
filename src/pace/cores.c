#include "cores.h"

#include "clock.h"
#include "relaxed.h"
#include "turn.h"

static struct meter meters[VGPU_DEVICES_MAX];
static struct region *joined; /* by cores_attach */
static enum pace_rule rule;

static unsigned stricter(unsigned a, unsigned b)
{
	return a == 0 || (b != 0 && b < a) ? b : a;
}

/* Whether the limits hold that are not the policy's. */
static bool own_hold(void)
{
	return rule == PACE_RULE_FORCE ||
	       (rule == PACE_RULE_SWITCH && RELAXED_LOAD(joined->file->hami.utilization_switch));
}

/* The region's, or the environment's where the region has none. */
static unsigned own_pct(const struct meter *meter)
{
	uint64_t region = RELAXED_LOAD(*meter->region_pct);

	return region == 0 ? meter->quota.env_pct : region < 100 ? (unsigned)region : 0;
}

/* The quota, percent; 0: none. It is read for each launch, because monitors and `vgpu set` change
 * it. */
unsigned cores_assured(const struct meter *meter)
{
	unsigned policy = RELAXED_LOAD(meter->quota.policy_pct),
		 own = own_hold() ? own_pct(meter) : 0;

	return stricter(policy < 100 ? policy : 0, own < 100 ? own : 0);
}

/* The most that one source of limits (the policy, or the region or the environment) allows,
 * percent; 0: no limit. It is not less than the assured percentage. */
static unsigned most_of(unsigned pct, unsigned most_pct)
{
	unsigned most = most_pct > pct ? most_pct : pct;

	return pct && most < 100 ? most : 0;
}

/* The most while no other slice wants the device. */
static unsigned cores_most(const struct meter *meter)
{
	unsigned policy = most_of(RELAXED_LOAD(meter->quota.policy_pct),
				  RELAXED_LOAD(meter->quota.policy_most_pct));
	unsigned own = own_hold() ? most_of(own_pct(meter), RELAXED_LOAD(*meter->region_most)) : 0;

	return stricter(policy, own);
}

static bool has_most(const struct meter *meter)
{
	return RELAXED_LOAD(meter->quota.policy_most_pct) || RELAXED_LOAD(*meter->region_most);
}

/* Whether turns show what other slices want of the device. One that never doubted needs no clock.
 */
static bool sees_others(const struct meter *meter)
{
	const struct turn *turn = __atomic_load_n(&meter->turn, __ATOMIC_ACQUIRE);

	return turn && !RELAXED_LOAD(meter->ganged) &&
	       turn_takes_part(turn, RELAXED_LOAD(turn->doubt_until) ? clock_steady_ns() : 0);
}

void cores_note_gang(struct meter *meter, bool goes_by_gang)
{
	if (RELAXED_LOAD(meter->ganged) != goes_by_gang)
		RELAXED_STORE(meter->ganged, goes_by_gang);
}

unsigned cores_limit(const struct meter *meter)
{
	unsigned pct = cores_assured(meter);

	if (!pct || !has_most(meter) || !sees_others(meter))
		return pct;
	return cores_most(meter);
}

static bool is_attached(const struct meter *meter)
{
	return __atomic_load_n(&meter->bucket, __ATOMIC_ACQUIRE) != NULL; /* cores_attach's store */
}

/* NULL: it is not in the slice. */
struct meter *cores_meter(int device)
{
	bool any = device >= 0 && device < VGPU_DEVICES_MAX;

	return any && is_attached(&meters[device]) ? &meters[device] : NULL;
}

unsigned cores_limit_at(uint32_t index)
{
	for (int device = 0; device < VGPU_DEVICES_MAX; device++) {
		const struct meter *meter = cores_meter(device);

		if (meter && meter->quota.index == (int)index)
			return cores_limit(meter);
	}
	return 0;
}

bool pace_is_limited(int device)
{
	const struct meter *meter = cores_meter(device);

	return meter && cores_limit(meter) != 0;
}

void pace_set_policy(int device, unsigned policy_pct, unsigned policy_most_pct)
{
	struct meter *meter = &meters[device];
	uint64_t before = RELAXED_LOAD(meter->quota.policy_pct), now = policy_pct;
	uint32_t most_before = RELAXED_LOAD(meter->quota.policy_most_pct),
		 most_now = policy_most_pct;

	RELAXED_STORE(meter->quota.policy_most_pct, policy_most_pct);
	RELAXED_STORE(meter->quota.policy_pct, policy_pct);
	if (is_attached(meter) && before != now)
		RELAXED_CAS(*meter->region_pct, before, now);
	if (is_attached(meter) && most_before != most_now)
		RELAXED_CAS(*meter->region_most, most_before, most_now);
}

/* Nothing is charged while there is no limit. An open window would contain such time, so it is
 * dropped. */
void cores_note_limit(struct meter *meter, bool limited)
{
	if (RELAXED_LOAD(meter->limited) == limited)
		return;
	RELAXED_STORE(meter->limited, limited);
	meter_break(meter);
}

void cores_lift(void)
{
	for (int device = 0; device < VGPU_DEVICES_MAX; device++)
		cores_note_limit(&meters[device], false);
}

bool cores_any_limit(void)
{
	for (int device = 0; device < VGPU_DEVICES_MAX; device++)
		if (pace_is_limited(device))
			return true;
	return false;
}

struct region *cores_region(void)
{
	return joined && region_is_there(joined) ? joined : NULL;
}

struct meter *cores_meter_at(int device)
{
	return &meters[device];
}

void cores_attach(struct region *region, const struct pace_quota *quotas, enum pace_rule new_rule)
{
	struct vgpu_region_file *file = region->file;

	joined = region;
	rule = new_rule;
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++) {
		struct meter *meter = &meters[device];
		int index = quotas[device].index;

		meter->quota = quotas[device];
		if (index < 0)
			continue;
		meter->region_pct = &file->hami.sm_limit[index];
		meter->region_most = &file->turn[index].cores_most;
		if (RELAXED_LOAD(*meter->region_pct)) /* which may be lifted later */
			meter->quota.env_pct = 0;
		meter->util = &file->hami.slots[region->slot].device_util[index];
		__atomic_store_n(&meter->bucket, &file->own.device[index].bucket, __ATOMIC_RELEASE);
	}
}

void cores_forked(void)
{
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		meters[device] = (struct meter){.bucket = NULL};
	joined = NULL;
}
