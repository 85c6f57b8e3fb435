#include "costs.h"

#include "hash.h"
#include "relaxed.h"
#include "sys.h"

_Static_assert(sizeof(struct cost) == 32, "two to a cache line");

static struct cost *table; /* set once, by the first thread that needs it */

static struct cost *get_table(void)
{
	struct cost *seen = __atomic_load_n(&table, __ATOMIC_ACQUIRE), *expected = NULL;
	void *memory;

	if (seen)
		return seen;
	if (sys_map_private(COST_ENTRIES * sizeof(*table), &memory) != 0)
		return NULL;
	if (__atomic_compare_exchange_n(&table, &expected, memory, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return memory;
	sys_unmap(memory, COST_ENTRIES * sizeof(*table));
	return expected;
}

void costs_forked(void)
{
	if (table)
		sys_unmap(table, COST_ENTRIES * sizeof(*table));
	table = NULL;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
	a = hash_word(a ^ b);
	return a ^ a >> 32;
}

/*
 * Each look-up marks its entry as used. A key that finds all its COST_PROBES places taken gets the
 * first of them that is not marked. Where all are marked, all lose their marks, and the key gets
 * the first place. So entries that are looked up again and again mostly stay, and entries that are
 * not looked up any more are replaced. The mark is a bit of the key: a look-up touches nothing but
 * the entry, and writes only where the mark is missing.
 */
#define USED ((uint64_t)1)

static uint64_t key_of(uint64_t function, uint64_t shape)
{
	return mix(mix(0, function), shape) | USED;
}

static void start_over(struct cost *cost, uint64_t key)
{
	RELAXED_STORE(cost->ns, COST_UNKNOWN);
	RELAXED_STORE(cost->samples, 0);
	RELAXED_STORE(cost->waits, 0);
	RELAXED_STORE(cost->sample_at_ns, 0);
	RELAXED_STORE(cost->blocks, 0);
	__atomic_store_n(&cost->key, key, __ATOMIC_RELEASE); /* last; pairs with look_up's load */
}

/* Sets or clears the mark of an entry whose key was `seen`. If another thread has given the entry
 * to another key meanwhile, the entry stays as it is. */
static void set_used(struct cost *cost, uint64_t seen, bool used)
{
	uint64_t key = used ? seen | USED : seen & ~USED;

	if (key != seen)
		RELAXED_CAS(cost->key, seen, key);
}

/* Returns the entry that a new key takes where none of its places is free. */
static struct cost *give_up(struct cost *entries, uint64_t at)
{
	for (unsigned i = 0; i < COST_PROBES; i++) {
		struct cost *cost = &entries[(at + i) % COST_ENTRIES];

		if (!(RELAXED_LOAD(cost->key) & USED))
			return cost;
	}
	for (unsigned i = 0; i < COST_PROBES; i++) {
		struct cost *cost = &entries[(at + i) % COST_ENTRIES];

		set_used(cost, RELAXED_LOAD(cost->key), false);
	}
	return &entries[at % COST_ENTRIES];
}

/* Returns the key's entry. If there is none: NULL, or with `make` a new entry, in a free place or
 * in one that is given up. */
static struct cost *look_up(uint64_t key, bool make)
{
	struct cost *entries = get_table(), *given_up;
	uint64_t at = key >> 20;

	for (unsigned i = 0; entries && i < COST_PROBES; i++) {
		struct cost *cost = &entries[(at + i) % COST_ENTRIES];
		uint64_t seen = __atomic_load_n(&cost->key, __ATOMIC_ACQUIRE);

		if ((seen | USED) == key) {
			set_used(cost, seen, true);
			return cost;
		}
		if (seen)
			continue;
		if (make)
			start_over(cost, key);
		return make ? cost : NULL;
	}
	if (!make || !entries)
		return NULL;
	given_up = give_up(entries, at);
	start_over(given_up, key);
	return given_up;
}

/* Guesses the cost in ns from the function's last sample with another number of blocks.
 * COST_UNKNOWN if there is none, if the sample took more than COST_GUESS_MOST_NS, or if the
 * numbers of blocks differ by more than COST_GUESS_TIMES. */
static uint64_t guess(const struct cost_of *what)
{
	const struct cost *other = what->blocks ? look_up(key_of(what->function, 0), false) : NULL;
	uint64_t ns = cost_ns(other), blocks;

	if (ns == COST_UNKNOWN || ns > COST_GUESS_MOST_NS)
		return COST_UNKNOWN;
	blocks = RELAXED_LOAD(other->blocks);
	if (what->blocks > COST_GUESS_TIMES * blocks || blocks > COST_GUESS_TIMES * what->blocks)
		return COST_UNKNOWN;
	return what->blocks <= blocks ? ns : ns * what->blocks / blocks;
}

struct cost *cost_find(const struct cost_of *what)
{
	uint64_t key = key_of(what->function, what->shape);
	struct cost *cost = look_up(key, true);

	if (cost && !RELAXED_LOAD(cost->samples) && !RELAXED_LOAD(cost->waits) &&
	    RELAXED_LOAD(cost->ns) == COST_UNKNOWN && what->shape)
		RELAXED_STORE(cost->ns, guess(what));
	return cost;
}

/* Whether the entry is still that of the work: its place may have been given to another key. */
static bool is_of(const struct cost *cost, const struct cost_of *what)
{
	return cost && (RELAXED_LOAD(cost->key) | USED) == key_of(what->function, what->shape);
}

void cost_learn(struct cost *cost, const struct cost_of *what, uint64_t took_ns, bool lean_low)
{
	uint64_t before_ns, most_ns;
	struct cost *other;
	uint16_t samples;

	if (!is_of(cost, what))
		return;
	samples = RELAXED_LOAD(cost->samples);
	if (samples < UINT16_MAX)
		RELAXED_STORE(cost->samples, (uint16_t)(samples + 1));
	before_ns = RELAXED_LOAD(cost->ns);
	most_ns = before_ns + before_ns / 2 + 1;
	if (!samples || before_ns == COST_UNKNOWN) { /* its place may be taken meanwhile */
		RELAXED_STORE(cost->ns, took_ns);
	} else {
		if (lean_low && took_ns > most_ns)
			took_ns = most_ns;
		RELAXED_STORE(cost->ns, before_ns - before_ns / 4 + took_ns / 4);
	}
	if (!what->shape || !what->blocks)
		return;
	other = look_up(key_of(what->function, 0), true);
	if (!other)
		return;
	RELAXED_STORE(other->blocks,
		      what->blocks < UINT32_MAX ? (uint32_t)what->blocks : UINT32_MAX);
	RELAXED_STORE(other->ns,
		      took_ns); /* no mean, which may be another's guess: guesses do not grow */
}

void cost_learn_wait(struct cost *cost, const struct cost_of *what)
{
	if (!is_of(cost, what))
		return;
	RELAXED_STORE(cost->waits, COST_WAITS);
	RELAXED_STORE(cost->ns, COST_UNKNOWN);
}

void cost_unlearn_wait(struct cost *cost, const struct cost_of *what, uint64_t long_ns)
{
	uint16_t waits, less = long_ns ? COST_WAITS / 4 : 1;

	if (!is_of(cost, what))
		return;
	waits = RELAXED_LOAD(cost->waits);
	RELAXED_STORE(cost->waits, waits > less ? (uint16_t)(waits - less) : 0);
	if (waits <= less && long_ns)
		cost_learn(cost, what, long_ns, false);
}

void cost_resample(const struct cost_of *what)
{
	struct cost *cost = look_up(key_of(what->function, what->shape), false);

	if (!cost)
		return;
	RELAXED_STORE(cost->samples, 0);
	RELAXED_STORE(cost->sample_at_ns, 0);
}

void cost_forget(const struct cost_of *what)
{
	uint64_t key = key_of(what->function, what->shape);
	struct cost *cost = look_up(key, false);

	if (cost)
		start_over(cost, key);
}
