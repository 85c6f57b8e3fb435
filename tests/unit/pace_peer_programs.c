/*
 * Random processes of one slice on one device: what they have together, and whether each goes on.
 * Some launch all the time, some wait for their work every few launches, and the hosts of some
 * pause for long without a wait.
 *
 * Programs are made from fixed seeds with integers only, and time is the fake's, so a run gives the
 * same figures each time. PROGRAMS=N plays N slices, SEED=N begins with another seed, and
 * VGPU_TEST_VERBOSE=1 prints the figures of each slice.
 */
#include "pace_many.h"

#define LENGTHS 3

struct program {
	unsigned lengths;
	struct kernel kernels[LENGTHS];
	uint64_t ahead_ns; /* work that it launches ahead */
	unsigned launches; /* between two waits; 0: it never waits */
	uint64_t host_ns;  /* after a wait */
	uint64_t pause_ns; /* without a wait before it; 0: it never pauses */
	unsigned launches_to_pause;
};

struct slice {
	const char *path;
	unsigned processes, quota;
	uint64_t warm_ns, for_ns;
	struct program program[PROCESSES_MAX];
};

/* -- made at random --------------------------------------------------------------------------- */

static struct program make_program(unsigned number)
{
	struct program program = {.lengths = 1 + below(LENGTHS)};

	for (unsigned i = 0; i < program.lengths; i++)
		program.kernels[i] = (struct kernel){.function = 1 + LENGTHS * number + i,
						     .ns = between_ns(20000, 9)};
	program.ahead_ns = between_ns(MS / 10, 9);
	program.launches = below(2) ? 1 + below(50) : 0;
	program.host_ns = program.launches && below(2) ? between_ns(10000, 9) : 0;
	program.pause_ns = below(4) ? 0 : between_ns(20 * MS, 5);
	program.launches_to_pause = 50 + below(500);
	return program;
}

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
	const struct program *program = &slice->program[self];
	struct region_setup setup = setup_from(0, DEVICES, GIB);
	struct pace_quota quotas[VGPU_DEVICES_MAX];
	uint64_t from_ns = FIRST_NS + slice->warm_ns, until_ns = from_ns + slice->for_ns;
	uint64_t busy_ns = 0, *done_ns = &fake.streams[0][0].done_ns;

	random_state = 1 + self;
	many_begin();
	MUST(open_claimed(slice->path, &setup, &region) == 0);
	region.file->hami.sm_limit[0] = slice->quota;
	for (int i = 0; i < VGPU_DEVICES_MAX; i++)
		quotas[i] = (struct pace_quota){.index = i < DEVICES ? i : -1};
	pace_forget();
	pace_attach(&region, quotas, PACE_RULE_SWITCH, &fake_driver);
	for (unsigned launches = 1; time_ns < until_ns; launches++) {
		MUST(launch(&program->kernels[below(program->lengths)]) == 0);
		if (*done_ns > time_ns + program->ahead_ns)
			pass(*done_ns - time_ns - program->ahead_ns);
		if (program->launches && launches % program->launches == 0) {
			synchronise_stream(0);
			pass(program->host_ns);
		}
		if (program->pause_ns && launches % program->launches_to_pause == 0)
			pass(program->pause_ns);
		if (!busy_ns && time_ns >= from_ns)
			busy_ns = fake.busy_ns[0];
	}
	shared->busy_ns[self] = busy_ns ? fake.busy_ns[0] - busy_ns : 0;
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
	struct place *place = *state;
	unsigned first = number("SEED", 0), count = number("PROGRAMS", 16);
	unsigned too_little = 0, too_much = 0, starved = 0;

	for (unsigned seed = first; seed < first + count; seed++) {
		struct slice slice = make(place->path, seed), bare = slice;
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
