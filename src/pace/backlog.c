#include "backlog.h"

#include "relaxed.h"

/* Moves *until on by ns, from now_ns at the earliest. Returns the former value. */
static uint64_t add(uint64_t *until, uint64_t ns, uint64_t now_ns)
{
	uint64_t until_ns = RELAXED_LOAD(*until), from_ns;

	do
		from_ns = until_ns > now_ns ? until_ns : now_ns;
	while (!RELAXED_CAS(*until, until_ns, from_ns + ns));
	return until_ns;
}

static void no_sooner(uint64_t *until, uint64_t than_ns)
{
	uint64_t until_ns = RELAXED_LOAD(*until);

	while (until_ns < than_ns && !RELAXED_CAS(*until, until_ns, than_ns))
		;
}

static void no_later(uint64_t *until, uint64_t than_ns)
{
	uint64_t until_ns = RELAXED_LOAD(*until);

	while (until_ns > than_ns && !RELAXED_CAS(*until, until_ns, than_ns))
		;
}

void backlog_charge(struct backlog *backlog, uint64_t cost_ns, uint64_t sure_ns, uint64_t now_ns)
{
	uint64_t until_ns;

	until_ns = add(&backlog->busy_until, sure_ns, now_ns);
	add(&backlog->due, cost_ns, now_ns);
	if (until_ns < now_ns && until_ns)
		RELAXED_ADD(backlog->idle, now_ns - until_ns);
	RELAXED_ADD(backlog->charged, (int64_t)cost_ns);
	RELAXED_ADD(backlog->sure, (int64_t)sure_ns);
}

struct backlog_many backlog_many_begin(const struct backlog *backlog)
{
	uint64_t until_ns = RELAXED_LOAD(backlog->busy_until);

	return (struct backlog_many){.from_ns = until_ns, .until_ns = until_ns};
}

bool backlog_many_is_alone(const struct backlog *backlog, const struct backlog_many *many)
{
	return RELAXED_LOAD(backlog->busy_until) == many->from_ns;
}

void backlog_many_add(struct backlog_many *many, uint64_t cost_ns, uint64_t sure_ns,
		      uint64_t now_ns)
{
	if (many->until_ns < now_ns) {
		many->idle_ns += now_ns - many->until_ns;
		many->until_ns = now_ns;
	}
	many->until_ns += sure_ns;
	many->charged_ns += cost_ns;
	many->sure_ns += sure_ns;
}

void backlog_charge_many(struct backlog *backlog, const struct backlog_many *many, uint64_t now_ns)
{
	uint64_t from_ns = many->from_ns;

	if (!RELAXED_CAS(backlog->busy_until, from_ns, many->until_ns)) {
		backlog_charge(backlog, many->charged_ns, many->sure_ns, now_ns - many->charged_ns);
		return;
	}
	RELAXED_ADD(backlog->due, many->charged_ns);
	no_sooner(&backlog->due, many->until_ns);
	RELAXED_ADD(backlog->idle, many->idle_ns);
	RELAXED_ADD(backlog->charged, (int64_t)many->charged_ns);
	RELAXED_ADD(backlog->sure, (int64_t)many->sure_ns);
}

void backlog_show(struct backlog *backlog, uint64_t *shown_ns, uint64_t until_ns)
{
	uint64_t from_ns = RELAXED_LOAD(*shown_ns);

	if (until_ns > from_ns && RELAXED_CAS(*shown_ns, from_ns, until_ns) && from_ns)
		RELAXED_ADD(backlog->charged, (int64_t)(until_ns - from_ns));
}

void backlog_correct(struct backlog *backlog, int64_t more_ns)
{
	RELAXED_ADD(backlog->corrected, more_ns);
	RELAXED_ADD(backlog->busy_until,
		    (uint64_t)more_ns); /* two's complement, so this goes both ways */
	RELAXED_ADD(backlog->due, (uint64_t)more_ns);
}

bool backlog_is_idle(const struct backlog *backlog, uint64_t now_ns)
{
	return RELAXED_LOAD(backlog->busy_until) < now_ns;
}

uint64_t backlog_ahead_ns(const struct backlog *backlog, uint64_t now_ns)
{
	uint64_t until_ns = RELAXED_LOAD(backlog->busy_until);

	return until_ns > now_ns ? until_ns - now_ns : 0;
}

void backlog_set_busy(struct backlog *backlog, uint64_t now_ns)
{
	no_sooner(&backlog->busy_until, now_ns);
	no_sooner(&backlog->due, now_ns);
}

void backlog_extend_to_due(struct backlog *backlog, uint64_t now_ns)
{
	uint64_t due_ns = RELAXED_LOAD(backlog->due);

	no_sooner(&backlog->busy_until, due_ns < now_ns ? due_ns : now_ns);
}

void backlog_extend_after(struct backlog *backlog, int64_t sure, uint64_t now_ns)
{
	no_sooner(&backlog->busy_until, now_ns + (uint64_t)(RELAXED_LOAD(backlog->sure) - sure));
}

void backlog_set_idle(struct backlog *backlog, uint64_t now_ns)
{
	no_later(&backlog->busy_until, now_ns);
	no_later(&backlog->due, now_ns);
}

uint64_t backlog_due_ns(const struct backlog *backlog)
{
	return RELAXED_LOAD(backlog->due);
}

uint64_t backlog_idle_ns(const struct backlog *backlog, uint64_t now_ns)
{
	uint64_t until_ns = RELAXED_LOAD(backlog->busy_until),
		 idle_ns = RELAXED_LOAD(backlog->idle);

	return until_ns < now_ns && until_ns ? idle_ns + now_ns - until_ns : idle_ns;
}

int64_t backlog_compare(struct backlog *backlog, int64_t from, int64_t to, int64_t busy_ns)
{
	int64_t seen = to - from, start = RELAXED_LOAD(backlog->measured), unmeasured;

	do
		if (start >= to)
			return 0;
	while (!RELAXED_CAS(backlog->measured, start, to));
	if (busy_ns < 0 || seen <= 0)
		return 0;
	unmeasured = to - (start > from ? start : from);
	return (int64_t)((double)unmeasured / (double)seen * (double)(busy_ns - seen));
}
