/*
 * Random processes of one slice on one device: what they have together, and whether each goes on.
 *
 * Programs are made from fixed seeds with integers only, and time is the fake's, so a run gives the
 * same figures each time. PROGRAMS=N plays N slices, SEED=N begins with another seed, and
 * VGPU_TEST_VERBOSE=1 prints the figures of each slice.
 */
#include "random_process.h"

struct slice {
	const char *path;
	unsigned processes, quota;
	uint64_t warm_ns, for_ns;
	struct program program[PROCESSES_MAX];
};

/* -- made at random --------------------------------------------------------------------------- */

static struct slice make(const char *path, unsigned seed)
{
	static const unsigned quotas[] = {20, 30, 50, 60, 80};
	struct slice slice = {.path = path, .warm_ns = 2 * NS_PER_S, .for_ns = 2 * NS_PER_S};

	random_state = 1 + seed;
	below(1);
	slice.processes = 2 + below(3);
	slice.quota = quotas[below(sizeof(quotas) / sizeof(*quotas))];
	for (unsigned i = 0; i < slice.processes; i++)
		slice.program[i] = make_program(i);
	return slice;
}

/* -- played ----------------------------------------------------------------------------------- */

static void run(void *arg)
{
	const struct slice *slice = arg;
	uint64_t from_ns = FIRST_NS + slice->warm_ns;

	many_begin();
	attach(slice->path, slice->quota);
	shared->busy_ns[self] =
		run_program(&slice->program[self], from_ns, from_ns + slice->for_ns);
	many_end();
}

/* Returns the part of the device's time that the processes had together, percent. *ret_idle: the
 * number of processes that launched nothing. */
static double play(struct slice *slice, unsigned *ret_idle)
{
	double sum = 0;

	*ret_idle = 0;
	unlink(slice->path);
	many_play(slice->processes, run, slice);
	for (unsigned i = 0; i < slice->processes; i++) {
		sum += 100.0 * (double)shared->busy_ns[i] / (double)slice->for_ns;
		*ret_idle += !shared->busy_ns[i];
	}
	munmap(shared, sizeof(*shared));
	return sum;
}

/* The bounds are what was seen when they were written, and one slice more. */
UNIT_TEST(test_peer_programs)
{
	unsigned first = number("SEED", 0), count = number("PROGRAMS", 16);
	unsigned too_little = 0, too_much = 0, starved = 0;

	for (unsigned seed = first; seed < first + count; seed++) {
		struct slice slice = make(here.path, seed), bare = slice;
		unsigned idle, idle_bare;
		double all, got, wanted;

		bare.quota = 0;
		all = play(&bare, &idle_bare);
		got = play(&slice, &idle);
		wanted = all < slice.quota ? all : slice.quota;
		too_little += got < 0.9 * wanted;
		too_much += got > slice.quota + 1.5;
		starved += idle > idle_bare;
		harness_note(
			"%u: %u processes, quota %u: %.1f of %.1f, %u idle (%u without a quota)",
			seed, slice.processes, slice.quota, got, wanted, idle, idle_bare);
	}
	harness_note("%u slices: too little %u, too much %u, starved %u", count, too_little,
		     too_much, starved);
	if (getenv("PROGRAMS") || getenv("SEED"))
		return;
	assert_in_range(too_little, 0, 2);
	assert_int_equal(too_much, 0);
	assert_int_equal(starved, 0);
}
