/*
 * Random slices that take turns on one device: what each gets beside the others, compared with what
 * it gets alone under its quota.
 *
 * Programs are made from fixed seeds with integers only, and time is the fake's, so a run gives the
 * same figures each time. PROGRAMS=N plays N groups of slices, SEED=N begins with another seed, and
 * VGPU_TEST_VERBOSE=1 prints the figures of each slice.
 */
#include "random_process.h"

#define SLICES_MAX 3

struct slice {
	unsigned quota;
	unsigned first, processes; /* of all of the group */
};

struct group {
	unsigned slices, processes;
	unsigned alone; /* the number of the slice that plays alone, and 1; 0: all play */
	uint64_t warm_ns, for_ns;
	struct slice slice[SLICES_MAX];
	struct program program[PROCESSES_MAX];
};

/* -- made at random --------------------------------------------------------------------------- */

static struct group make(unsigned seed)
{
	struct group group = {.warm_ns = 2 * NS_PER_S, .for_ns = 2 * NS_PER_S};
	unsigned left = 100;

	random_state = 1 + seed;
	below(1);
	group.slices = 2 + below(SLICES_MAX - 1);
	for (unsigned i = 0; i < group.slices; i++) {
		struct slice *slice = &group.slice[i];
		unsigned rest = left / (group.slices - i);

		slice->first = group.processes;
		slice->processes = below(3) ? 1 : 2;
		slice->quota = 5 * (2 + below(rest / 5 - 1));
		left -= slice->quota;
		group.processes += slice->processes;
	}
	for (unsigned i = 0; i < group.processes; i++)
		group.program[i] = make_program(i);
	return group;
}

/* -- played ----------------------------------------------------------------------------------- */

static unsigned slice_of(const struct group *group, unsigned process)
{
	unsigned i = group->slices - 1;

	while (group->slice[i].first > process)
		i--;
	return i;
}

static void run(void *arg)
{
	const struct group *group = arg;
	unsigned process = self + (group->alone ? group->slice[group->alone - 1].first : 0);
	unsigned slice = slice_of(group, process);
	char path[128];

	many_begin();
	snprintf(path, sizeof(path), "%s/region.%u", here.dir, slice);
	pace_forked();
	pace_set_turns(here.dir, "");
	attach(path, group->slice[slice].quota);
	shared->busy_ns[self] = run_program(&group->program[process], FIRST_NS + group->warm_ns,
					    FIRST_NS + group->warm_ns + group->for_ns);
	many_end();
}

static void note_program(unsigned number, const struct program *program)
{
	harness_note("    process %u: kernels of %u, %u, %u us (the first %u), %u us ahead, waits "
		     "after %u, "
		     "then %u us, pauses for %u us after %u",
		     number, (unsigned)program->kernels[0].ns / 1000,
		     (unsigned)program->kernels[1].ns / 1000,
		     (unsigned)program->kernels[2].ns / 1000, program->lengths,
		     (unsigned)program->ahead_ns / 1000, program->launches,
		     (unsigned)program->host_ns / 1000, (unsigned)program->pause_ns / 1000,
		     program->launches_to_pause);
}

/* ret_share: what each slice gets of the device's time, percent. */
static void play(struct group *group, double ret_share[SLICES_MAX])
{
	unsigned first = group->alone ? group->slice[group->alone - 1].first : 0;
	unsigned count = group->alone ? group->slice[group->alone - 1].processes : group->processes;

	for (unsigned i = 0; i < SLICES_MAX; i++)
		ret_share[i] = 0;
	many_play(count, run, group);
	for (unsigned i = 0; i < count; i++)
		ret_share[slice_of(group, first + i)] +=
			100.0 * (double)shared->busy_ns[i] / (double)group->for_ns;
	munmap(shared, sizeof(*shared));
	place_empty();
}

/* The bounds are what was seen when they were written, and one slice more. */
UNIT_TEST(test_turn_programs)
{
	unsigned first = number("SEED", 0), count = number("PROGRAMS", 8);
	unsigned all = 0, too_little = 0, too_much = 0, starved = 0;

	for (unsigned seed = first; seed < first + count; seed++) {
		struct group group = make(seed);
		double beside[SLICES_MAX];

		for (unsigned i = 0; i < group.processes; i++)
			note_program(i, &group.program[i]);
		play(&group, beside);
		for (unsigned i = 0; i < group.slices; i++) {
			const struct slice *slice = &group.slice[i];
			double alone[SLICES_MAX];

			group.alone = i + 1;
			play(&group, alone);
			all++;
			too_little += beside[i] < 0.9 * alone[i];
			too_much += beside[i] > slice->quota + 1.5;
			starved += alone[i] > 0 && beside[i] < 0.2 * alone[i];
			harness_note("%u.%u: %u processes, quota %u: %.1f of %.1f%s", seed, i,
				     slice->processes, slice->quota, beside[i], alone[i],
				     beside[i] < 0.9 * alone[i]       ? " LESS"
				     : beside[i] > slice->quota + 1.5 ? " MORE"
								      : "");
		}
	}
	harness_note("%u slices: too little %u, too much %u, starved %u", all, too_little, too_much,
		     starved);
	if (getenv("PROGRAMS") || getenv("SEED"))
		return;
	assert_in_range(too_little, 0, 6);
	assert_in_range(too_much, 0, 1);
	assert_int_equal(starved, 0);
}
