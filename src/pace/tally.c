#include "tally.h"

#include "words.h"

/* That much more is to be done, from now on or when the rest is; when it was. */
static uint64_t add(uint64_t *until, uint64_t ns, uint64_t now_ns)
{
	uint64_t until_ns = LOAD(*until), from_ns;

	do
		from_ns = until_ns > now_ns ? until_ns : now_ns;
	while (!SWAP(*until, until_ns, from_ns + ns));
	return until_ns;
}

static void no_sooner(uint64_t *until, uint64_t than_ns)
{
	uint64_t until_ns = LOAD(*until);

	while (until_ns < than_ns && !SWAP(*until, until_ns, than_ns))
		;
}

static void no_later(uint64_t *until, uint64_t than_ns)
{
	uint64_t until_ns = LOAD(*until);

	while (until_ns > than_ns && !SWAP(*until, until_ns, than_ns))
		;
}

void tally_charge(struct tally *tally, uint64_t cost_ns, uint64_t sure_ns, uint64_t now_ns)
{
	uint64_t until_ns;

	until_ns = add(&tally->busy_until, sure_ns, now_ns);
	add(&tally->due, cost_ns, now_ns);
	if (until_ns < now_ns && until_ns)
		ADD(tally->idle, now_ns - until_ns);
	ADD(tally->charged, (int64_t)cost_ns);
	ADD(tally->sure, (int64_t)sure_ns);
}

struct tally_many tally_many_begin(const struct tally *tally)
{
	uint64_t until_ns = LOAD(tally->busy_until);

	return (struct tally_many){.from_ns = until_ns, .until_ns = until_ns};
}

bool tally_many_is_alone(const struct tally *tally, const struct tally_many *many)
{
	return LOAD(tally->busy_until) == many->from_ns;
}

void tally_many_add(struct tally_many *many, uint64_t cost_ns, uint64_t sure_ns, uint64_t now_ns)
{
	if (many->until_ns < now_ns) {
		many->idle_ns += now_ns - many->until_ns;
		many->until_ns = now_ns;
	}
	many->until_ns += sure_ns;
	many->charged_ns += cost_ns;
	many->sure_ns += sure_ns;
}

void tally_charge_many(struct tally *tally, const struct tally_many *many, uint64_t now_ns)
{
	uint64_t from_ns = many->from_ns;

	if (!SWAP(tally->busy_until, from_ns, many->until_ns)) {
		tally_charge(tally, many->charged_ns, many->sure_ns, now_ns - many->charged_ns);
		return;
	}
	ADD(tally->due, many->charged_ns);
	no_sooner(&tally->due, many->until_ns);
	ADD(tally->idle, many->idle_ns);
	ADD(tally->charged, (int64_t)many->charged_ns);
	ADD(tally->sure, (int64_t)many->sure_ns);
}

void tally_show(struct tally *tally, uint64_t *shown_ns, uint64_t until_ns)
{
	uint64_t from_ns = LOAD(*shown_ns);

	if (until_ns > from_ns && SWAP(*shown_ns, from_ns, until_ns) && from_ns)
		ADD(tally->charged, (int64_t)(until_ns - from_ns));
}

void tally_correct(struct tally *tally, int64_t more_ns)
{
	ADD(tally->corrected, more_ns);
	ADD(tally->busy_until, (uint64_t)more_ns); /* two's complement, so this goes both ways */
	ADD(tally->due, (uint64_t)more_ns);
}

bool tally_is_idle(const struct tally *tally, uint64_t now_ns)
{
	return LOAD(tally->busy_until) < now_ns;
}

uint64_t tally_ahead_ns(const struct tally *tally, uint64_t now_ns)
{
	uint64_t until_ns = LOAD(tally->busy_until);

	return until_ns > now_ns ? until_ns - now_ns : 0;
}

void tally_is_busy_after_all(struct tally *tally, uint64_t now_ns)
{
	no_sooner(&tally->busy_until, now_ns);
	no_sooner(&tally->due, now_ns);
}

void tally_is_busy_while_due(struct tally *tally, uint64_t now_ns)
{
	uint64_t due_ns = LOAD(tally->due);

	no_sooner(&tally->busy_until, due_ns < now_ns ? due_ns : now_ns);
}

void tally_is_behind(struct tally *tally, int64_t sure, uint64_t now_ns)
{
	no_sooner(&tally->busy_until, now_ns + (uint64_t)(LOAD(tally->sure) - sure));
}

void tally_is_idle_after_all(struct tally *tally, uint64_t now_ns)
{
	no_later(&tally->busy_until, now_ns);
	no_later(&tally->due, now_ns);
}

uint64_t tally_due_ns(const struct tally *tally)
{
	return LOAD(tally->due);
}

uint64_t tally_idle_ns(const struct tally *tally, uint64_t now_ns)
{
	uint64_t until_ns = LOAD(tally->busy_until), idle_ns = LOAD(tally->idle);

	return until_ns < now_ns && until_ns ? idle_ns + now_ns - until_ns : idle_ns;
}

int64_t tally_compare(struct tally *tally, int64_t from, int64_t to, int64_t busy_ns)
{
	int64_t seen = to - from, start = LOAD(tally->measured), anew;

	do
		if (start >= to)
			return 0;
	while (!SWAP(tally->measured, start, to));
	if (busy_ns < 0 || seen <= 0)
		return 0;
	anew = to - (start > from ? start : from);
	return (int64_t)((double)anew / (double)seen * (double)(busy_ns - seen));
}
