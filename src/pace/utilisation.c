#include "utilisation.h"

#include "clock.h"
#include "cores.h"
#include "relaxed.h"

static void store_utilisation(const struct meter *meter, uint64_t pct)
{
	const struct region *region = cores_region();

	RELAXED_STORE(meter->util->sm, pct);
	/* An exiting process's slot is empty: region/exit.c stores `exiting` before the 0. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!region || RELAXED_LOAD(region->exiting))
		RELAXED_STORE(meter->util->sm, 0);
}

/* Returns for how many ns the process was at work, in all, until now_ns. */
static uint64_t work_ns(struct meter *meter, uint64_t now_ns)
{
	uint64_t at_ns = RELAXED_LOAD(meter->work_at_ns);

	return RELAXED_LOAD(meter->work_ns) + (at_ns ? meter_since(now_ns, at_ns) : 0);
}

void utilisation_begin(struct meter *meter, uint64_t now_ns)
{
	uint64_t none = 0;

	if (RELAXED_LOAD(meter->work_at_ns) || !RELAXED_CAS(meter->work_at_ns, none, now_ns))
		return;
	store_utilisation(meter, RELAXED_LOAD(meter->shown_pct));
}

void utilisation_rest(struct meter *meter, uint64_t now_ns)
{
	uint64_t at_ns = RELAXED_LOAD(meter->work_at_ns);
	uint64_t took_ns = at_ns ? meter_since(now_ns, at_ns) : 0, none = 0;

	if (!at_ns || !RELAXED_CAS(meter->work_at_ns, at_ns, none))
		return;
	RELAXED_ADD(meter->work_ns, took_ns);
	store_utilisation(meter, 0);
}

/* Once in a second of work. */
void utilisation_show(struct meter *meter, uint64_t now_ns)
{
	uint64_t now_work_ns = work_ns(meter, now_ns),
		 then_work_ns = RELAXED_LOAD(meter->shown_work_ns);
	uint64_t took_ns = meter_since(now_work_ns, then_work_ns), pct;
	int64_t own_ns, before_ns;

	if (took_ns < NS_PER_S || !RELAXED_CAS(meter->shown_work_ns, then_work_ns, now_work_ns))
		return;
	own_ns = RELAXED_LOAD(meter->backlog.charged) + RELAXED_LOAD(meter->backlog.corrected);
	before_ns = __atomic_exchange_n(&meter->shown_ns, own_ns, __ATOMIC_RELAXED);
	if (own_ns < before_ns)
		return;
	pct = (uint64_t)(own_ns - before_ns) * 100 / took_ns;
	RELAXED_STORE(meter->shown_pct, pct < 100 ? pct : 100);
	if (RELAXED_LOAD(meter->work_at_ns))
		store_utilisation(meter, RELAXED_LOAD(meter->shown_pct));
}
