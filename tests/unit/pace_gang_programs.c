/*
 * Random jobs of several ranks under a quota, on the model of a gang: how far each is from its
 * share. No single job is judged: the tests count how many of a few dozen get too little, and how
 * many keep a device busy for too long, and bound the counts.
 *
 * Jobs are made from fixed seeds with integers only, and time is the model's, so a run gives the
 * same figures each time. PROGRAMS=N plays N jobs of each kind, SEED=N begins with another seed,
 * VGPU_TEST_VERBOSE=1 prints the figures of each kind, and VGPU_TEST_VERBOSE=2 those of each job.
 */
#include "chance.h"
#include "gang_model.h"
#include "note.h"

enum kind {
	EVEN,   /* all ranks do the same */
	UNEVEN, /* long kernels, of which the first rank has up to five more in each step */
	APART,  /* no rank waits for another */
	JOINT,  /* as EVEN, each rank in a slice of its own */
};

/* How many jobs of a kind are beyond that. */
struct counts {
	unsigned below;   /* steps: 6 % less than what the quota allows */
	unsigned above;   /* a device is busy for 1.5 points more than its quota */
	unsigned above_5; /* for 5 points more */
};

/* -- made at random --------------------------------------------------------------------------- */

static struct job make(enum kind kind, unsigned from)
{
	static const unsigned quotas[] = {10, 20, 30, 50, 60, 80, 90};
	struct job job = {.ranks = 2};

	random_state = from;
	below(1);
	job.ranks += below(4) ? below(3) : 6;
	job.kernels = 1 + below(20);
	job.kernel_ns = between_ns(20 * US, 10);
	if (job.kernels * job.kernel_ns > 60 * MS)
		job.kernels = 1;
	job.collective_ns = between_ns(20 * US, 7);
	job.jitter_pct = below(4) ? below(60) : 0;
	job.ahead = below(3) ? 1 + below(10) : 1;
	job.call_ns = between_ns(3 * US, 5);
	job.stall_ns = below(2) ? between_ns(50 * US, 7) : 0;
	if (kind == UNEVEN) {
		job.kernels = 1 + below(3);
		job.kernel_ns = between_ns(1 * MS, 4);
		job.more = 1 + below(5);
	}
	job.apart = kind == APART;
	job.joint = kind == JOINT;
	job.skewed = below(2);
	job.pct = quotas[below(sizeof(quotas) / sizeof(*quotas))];
	return job;
}

/* -- judged ----------------------------------------------------------------------------------- */

static void judge(struct counts *counts, const struct job *job, unsigned from)
{
	double busy, got = share(*job, &busy);
	double wanted = job->pct < bare_busy ? job->pct * 100.0 / bare_busy : 100;

	counts->below += got < wanted * 0.94;
	counts->above += busy > job->pct + 1.5;
	counts->above_5 += busy > job->pct + 5;
	if (number("VGPU_TEST_VERBOSE", 0) < 2)
		return;
	fprintf(stderr,
		"%u: %u ranks%s%s, %u and %u kernels of %u us, collective %u us, jitter %u, "
		"ahead %u, call %u us, stall %u us, quota %u: %.1f of %.1f %% of bare, busy %.1f\n",
		from, job->ranks, job->apart ? " apart" : "", job->joint ? " joint" : "",
		job->kernels, job->more, (unsigned)(job->kernel_ns / US),
		(unsigned)(job->collective_ns / US), job->jitter_pct, job->ahead,
		(unsigned)(job->call_ns / US), (unsigned)(job->stall_ns / US), job->pct, got,
		wanted, busy);
}

static void play_many(enum kind kind, unsigned count, struct counts most)
{
	bool as_written = !getenv("PROGRAMS") && !getenv("SEED");
	unsigned first = number("SEED", 1);
	struct counts counts = {0};

	count = number("PROGRAMS", count);
	for (unsigned i = 0; i < count; i++) {
		struct job job = make(kind, first + i);

		judge(&counts, &job, first + i);
	}
	harness_note("kind %d, %u jobs: below by 6 %%: %u, above by 1.5: %u, by 5: %u", kind, count,
		     counts.below, counts.above, counts.above_5);
	if (!as_written)
		return;
	assert_in_range(counts.below, 0, most.below);
	assert_in_range(counts.above, 0, most.above);
	assert_in_range(counts.above_5, 0, most.above_5);
}

/* The bounds are what was seen when they were written, and one job more. */

UNIT_TEST_ALONE(test_even)
{
	play_many(EVEN, 30, (struct counts){1, 1, 0});
}

UNIT_TEST_ALONE(test_uneven)
{
	play_many(UNEVEN, 60, (struct counts){1, 3, 0});
}

UNIT_TEST_ALONE(test_apart)
{
	play_many(APART, 30, (struct counts){1, 1, 0});
}

UNIT_TEST_ALONE(test_joint)
{
	play_many(JOINT, 30, (struct counts){1, 1, 0});
}
