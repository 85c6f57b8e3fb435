/* The table of costs: what is unknown, guessed, learned, crowded out and forgotten. */
#include <pthread.h>
#include <sys/syscall.h>

#include "costs.h"
#include "region_fixture.h"

#define MS NS_PER_MS

/* A function with a grid of so many blocks. */
static struct cost_of grid(uint64_t function, uint64_t blocks)
{
	return (struct cost_of){.function = function, .shape = blocks + 1, .blocks = blocks};
}

static uint64_t known(struct cost_of what)
{
	return cost_ns(cost_find(&what));
}

static void learn(struct cost_of what, uint64_t ns, bool lean_low)
{
	cost_learn(cost_find(&what), &what, ns, lean_low);
}

static int anew(void **state)
{
	(void)state;
	costs_forked();
	return 0;
}

#undef UNIT_SET_UP
#undef UNIT_TEAR_DOWN
#define UNIT_SET_UP    anew
#define UNIT_TEAR_DOWN NULL

UNIT_TEST(test_unknown)
{
	struct cost_of what = grid(7, 3);

	assert_true(known(what) == COST_UNKNOWN);
	assert_true(known(grid(7, 0)) == COST_UNKNOWN);
	assert_ptr_equal(cost_find(&what), cost_find(&what));
	assert_true(cost_ns(NULL) == COST_UNKNOWN);
	cost_learn(NULL, &what, 5, false);
}

UNIT_TEST(test_no_shape)
{
	struct cost_of graph = {.function = 9};

	assert_true(known(graph) == COST_UNKNOWN);
	learn(graph, 3 * MS, false);
	assert_true(known(graph) == 3 * MS);
	assert_true(known((struct cost_of){.function = 10}) == COST_UNKNOWN);
}

/* More blocks take longer, fewer take as long at most; who has none says nothing. */
UNIT_TEST(test_guess)
{
	learn(grid(1, 100), MS, false);
	assert_true(known(grid(1, 200)) == 2 * MS);
	assert_true(known(grid(1, 50)) == MS);
	assert_true(known(grid(2, 100)) == COST_UNKNOWN);
	assert_true(known(grid(1, 0)) == COST_UNKNOWN);
	learn(grid(1, 200), 5 * MS, false); /* no guess any more */
	assert_true(known(grid(1, 200)) == 5 * MS);
	assert_true(known(grid(1, 100)) == MS);
	assert_true(known(grid(1, 400)) == 10 * MS);               /* from the last */
	assert_true(known(grid(1, 16 * 200 + 1)) == COST_UNKNOWN); /* too far from it */
	assert_true(known(grid(1, 12)) == COST_UNKNOWN);
	learn(grid(3, 100), 2 * COST_GUESS_MOST_NS, false);
	assert_true(known(grid(3, 90)) == COST_UNKNOWN);
}

UNIT_TEST(test_mean)
{
	struct cost_of what = grid(1, 1);

	learn(what, 10 * MS, false);
	assert_true(known(what) == 10 * MS);
	for (unsigned i = 0; i < 20; i++) {
		learn(what, 2 * MS, false);
		learn(what, 4 * MS, false);
	}
	assert_in_range(known(what), 2 * MS, 4 * MS);
	for (unsigned i = 0; i < 20; i++)
		learn(what, 40 * MS, false);
	assert_in_range(known(what), 39 * MS, 40 * MS);
}

/* One that is long adds an eighth at most then. */
UNIT_TEST(test_lean_low)
{
	struct cost_of what = grid(1, 1);

	learn(what, 8 * MS, true);
	learn(what, 800 * MS, true);
	assert_in_range(known(what), 8 * MS, 9 * MS + 1);
	for (unsigned i = 0; i < 60; i++) /* it does take longer now */
		learn(what, 80 * MS, true);
	assert_in_range(known(what), 79 * MS, 80 * MS);
}

/* Times that no sample should have. */
UNIT_TEST(test_extremes)
{
	struct cost_of what = grid(1, UINT64_MAX / 2);

	learn(what, 0, true);
	assert_true(known(what) == 0);
	learn(what, UINT64_MAX / 2, false);
	learn(what, UINT64_MAX / 2, true);
	assert_true(known(what) > UINT64_MAX / 16 && known(what) <= UINT64_MAX / 2);
	for (unsigned i = 0; i < 100; i++)
		learn(what, 100 * NS_PER_S, false);
	assert_in_range(known(what), 99 * NS_PER_S, 101 * NS_PER_S);
}

/* Whoever comes finds a place, and who has lost it neither writes there nor reads another's. */
UNIT_TEST(test_full)
{
	struct cost_of first = grid(1, 1);
	struct cost *mine = cost_find(&first);
	uint64_t key = mine->key | 1; /* whatever the mark says */
	unsigned lost = 0;

	cost_learn(mine, &first, MS, false);
	for (uint64_t i = 2; i < 50000; i++) {
		struct cost_of what = grid(i, 1);
		struct cost *cost = cost_find(&what);

		assert_non_null(cost);
		assert_true(cost_ns(cost) == COST_UNKNOWN);
		cost_learn(cost, &what, i, false);
		lost += known(what) != i; /* to what the function's others are guessed from */
	}
	assert_true(lost < 500);
	assert_true((mine->key | 1) != key);
	cost_learn(mine, &first, 77 * MS, false);
	assert_true(cost_ns(mine) != 77 * MS);
	assert_true(known(first) == COST_UNKNOWN || known(first) == MS);
}

/* Kernels that were launched once, each several times, do not drive out those that are launched
 * now: in each round all of them are looked up once, and few are found to be unknown. */
UNIT_TEST(test_hot)
{
	const unsigned dead = 20000, hot = 1000, rounds = 20;
	unsigned unknown = 0;

	for (unsigned i = 0; i < 4 * dead; i++)
		learn(grid(1 + i / 4, 1), MS, false);
	for (unsigned round = 0; round < rounds; round++)
		for (unsigned i = 0; i < hot; i++) {
			struct cost_of what = {.function = 100000 + i};

			if (known(what) != COST_UNKNOWN)
				continue;
			unknown += round >= rounds / 2;
			learn(what, MS, false);
		}
	assert_in_range(unknown, 0, hot * (rounds / 2) / 100);
}

UNIT_TEST(test_forget)
{
	struct cost_of one = grid(1, 1), other = grid(2, 2), never = grid(3, 3);

	learn(one, MS, false);
	learn(other, MS, false);
	cost_forget(&never);
	cost_forget(&(struct cost_of){.function = 1}); /* what other geometries are guessed from */
	cost_forget(&one);
	assert_true(known(one) == COST_UNKNOWN);
	assert_true(known(other) == MS);
	costs_forked();
	assert_true(known(other) == COST_UNKNOWN);
	costs_forked();
	costs_forked();
}

/* What was updated costs what it did until it is measured: then that alone. */
UNIT_TEST(test_resample)
{
	struct cost_of what = {.function = 1}, never = {.function = 2};
	struct cost *cost = cost_find(&what);

	for (unsigned i = 0; i < COST_SAMPLES_NEW; i++)
		cost_learn(cost, &what, MS, false);
	assert_false(cost_is_new(cost));
	cost_resample(&never);
	cost_resample(&what);
	assert_true(known(what) == MS);
	assert_true(cost_is_new(cost));
	cost_learn(cost, &what, 10 * MS, false);
	assert_true(known(what) == 10 * MS);
	cost_resample(&what);
	cost_learn(cost, &what, MS, true);
	assert_true(known(what) == MS);
	assert_true(known(never) == COST_UNKNOWN);
}

static long refuse_memory(long number)
{
	return number == SYS_mmap ? -ENOMEM : 0;
}

UNIT_TEST(test_no_memory)
{
	struct cost_of what = grid(1, 1);

	sys_fault = refuse_memory;
	assert_null(cost_find(&what));
	cost_forget(&what);
	learn(what, MS, false);
	sys_fault = NULL;
	assert_non_null(cost_find(&what));
}

/* What waits has no cost, not even a guess; it is new again after some runs that were short, and
 * has the cost of the last of a few that were long. */
UNIT_TEST(test_waits)
{
	struct cost_of what = grid(5, 100);
	struct cost *cost = cost_find(&what);
	unsigned runs;

	assert_false(cost_waits(NULL));
	learn(grid(5, 50), MS, false);
	cost_learn_wait(cost, &what);
	assert_true(cost_waits(cost_find(&what)));
	assert_true(known(what) == COST_UNKNOWN);
	for (runs = 0; cost_waits(cost); runs++)
		cost_unlearn_wait(cost, &what, 0);
	assert_in_range(runs, 10, 100);
	assert_true(known(what) == 2 * MS); /* by the other geometry */
	cost_learn_wait(cost, &what);
	for (runs = 0; cost_waits(cost); runs++)
		cost_unlearn_wait(cost, &what, (10 + runs) * MS);
	assert_in_range(runs, 2, 8);
	assert_true(known(what) == (9 + runs) * MS);
	what = grid(6, 1); /* it has its place no more */
	cost_learn_wait(cost, &what);
	assert_false(cost_waits(cost));
}

/* -- all at once ------------------------------------------------------------------------------ */

#define THREADS   6
#define ROUNDS    20000
#define FUNCTIONS 300 /* each of many geometries: more than there are places */

/* What a thread reads is unknown, or was seen of something, or is a guess; where places are taken
 * all the time, from a guess: but no more than a guess may be. */
static void *learn_on(void *arg)
{
	uint64_t seed = (uint64_t)(uintptr_t)arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct cost_of what;
		struct cost *cost;
		uint64_t ns;

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		what = grid(1 + (seed >> 33) % FUNCTIONS, 1 + (seed >> 50) % 64);
		cost = cost_find(&what);
		if (!cost)
			abort();
		cost_learn(cost, &what, 1000 + (seed >> 40) % 1000, seed & 1 << 30);
		ns = cost_ns(cost); /* once: it may be taken at any time */
		if (ns != COST_UNKNOWN && ns > 16 * COST_GUESS_MOST_NS)
			abort();
	}
	return NULL;
}

UNIT_TEST(test_at_once)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, learn_on, (void *)(i + 1)), 0);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
}
