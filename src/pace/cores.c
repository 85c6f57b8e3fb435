#include "cores.h"

#include "words.h"

static struct meter meters[VGPU_DEVICES_MAX];
static struct region *joined; /* by cores_attach */
static enum pace_rule rule;

static unsigned stricter(unsigned a, unsigned b)
{
	return a == 0 || (b != 0 && b < a) ? b : a;
}

/* 0: none. Read anew for each launch, as monitors and others change it. */
unsigned cores_limit(const struct meter *meter)
{
	unsigned policy = LOAD(meter->quota.policy_pct), own = 0;
	uint64_t region;

	if (rule == PACE_RULE_FORCE ||
	    (rule == PACE_RULE_SWITCH && LOAD(joined->file->hami.utilization_switch))) {
		region = LOAD(*meter->region_pct);
		own = region == 0 ? meter->quota.own_pct : region < 100 ? (unsigned)region : 0;
	}
	return stricter(policy < 100 ? policy : 0, own < 100 ? own : 0);
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

void pace_set_policy(int device, unsigned policy_pct)
{
	struct meter *meter = &meters[device];
	uint64_t before = LOAD(meter->quota.policy_pct), now = policy_pct;

	STORE(meter->quota.policy_pct, policy_pct);
	if (is_attached(meter) && before != now)
		SWAP(*meter->region_pct, before, now);
}

/* While there is no limit, nothing is charged: what is being measured has that in it. */
void cores_note_limit(struct meter *meter, bool limited)
{
	if (LOAD(meter->limited) == limited)
		return;
	STORE(meter->limited, limited);
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
		if (LOAD(*meter->region_pct)) /* which may be lifted later */
			meter->quota.own_pct = 0;
		meter->util = &file->hami.slots[region->slot].device_util[index];
		__atomic_store_n(&meter->bucket, &file->own.device[index].bucket, __ATOMIC_RELEASE);
	}
}

void cores_forget(void)
{
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		meters[device] = (struct meter){.bucket = NULL};
	joined = NULL;
}
