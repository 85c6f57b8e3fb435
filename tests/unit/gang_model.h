/*
 * A model of gangs: hosts and devices in virtual time, in steps of STEP_NS. Each rank has a
 * device. A step of its job is some kernels and a collective, which ends some time after the
 * last rank has begun it. The ranks ask the gang as processes do. They know exactly whether
 * their device is idle, but only when they ask.
 */
#pragma once

#include "bucket.h"
#include "clock.h"
#include "constants.h"
#include "gang.h"
#include "gang_time.h"
#include "region_fixture.h"

#define STEP_NS   ((uint64_t)5000)
#define RANKS_MAX 8
#define QUEUE     4096
#define NAP_NS    ((uint64_t)75000) /* duration of a short sleep */
#define US        NS_PER_US
#define MS        NS_PER_MS

struct job {
	unsigned ranks, pct;
	uint64_t kernel_ns, collective_ns;
	unsigned kernels;    /* before each collective */
	unsigned jitter_pct; /* variation of a kernel's length */
	unsigned ahead;      /* steps that a host may be ahead of its device */
	uint64_t stall_ns;   /* one launch in ten is late by up to this */
	uint64_t call_ns;    /* host time of a launch */
	unsigned more;       /* additional kernels of the first rank in each step */
	bool apart;          /* no rank waits for another */
	bool skewed;         /* one rank's host begins late */
	bool joint;          /* each rank has a slice of its own */
	unsigned second_pct; /* quota of the second rank; 0: pct */
};

struct work {
	uint64_t left_ns; /* of a kernel; the rest of its work */
	bool collective;
	uint32_t number;
};

static struct rank {
	struct gang_member self;
	struct work queue[QUEUE];
	unsigned head, tail; /* of the queue; the device works on head */
	bool begun;          /* the collective at the head has begun */
	uint64_t host_ns;    /* the host does nothing before this time */
	unsigned phase;      /* kernels of the present step that were launched */
	uint32_t launched, done;
	uint64_t busy_ns, ended_ns;
	bool stopped;
} ranks[RANKS_MAX];

static struct vgpu_region_gang words;
static struct vgpu_region_device regions[RANKS_MAX][VGPU_DEVICES_MAX];
static struct vgpu_region_turn turns[RANKS_MAX][VGPU_DEVICES_MAX];
static struct vgpu_region_device *const devices = regions[0];
static bool dead[RANKS_MAX];
static uint64_t now_ns, seed;
/* time in which the gang was shut and had work, and in which it was shut and idle */
static uint64_t closing_ns, closed_ns;

static uint64_t chance(uint64_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return below ? seed % below : 0;
}

static bool lives(const struct gang *gang, uint32_t owner)
{
	(void)gang;
	return !dead[owner - 1];
}

static struct gang gangs[RANKS_MAX]; /* the gang, as each rank sees it */

static const struct gang *gang_of(const struct rank *rank)
{
	return &gangs[rank - ranks];
}

static unsigned pct_of(const struct job *job, const struct rank *rank)
{
	return job->second_pct && rank == &ranks[1] ? job->second_pct : job->pct;
}

/* -- devices ---------------------------------------------------------------------------------- */

static bool is_idle(const struct rank *rank)
{
	return rank->head == rank->tail;
}

/* The number of ranks that have begun that collective. */
static unsigned begun(uint32_t number, unsigned count)
{
	unsigned many = 0;

	for (unsigned i = 0; i < count; i++) {
		const struct rank *rank = &ranks[i];
		const struct work *work = &rank->queue[rank->head % QUEUE];

		many += rank->done > number ||
			(!is_idle(rank) && rank->begun && work->number == number);
	}
	return many;
}

static uint64_t joined_ns[QUEUE]; /* when the last rank began each collective; 0: not yet */

static void advance(const struct job *job, struct rank *rank)
{
	struct work *work = &rank->queue[rank->head % QUEUE];

	if (is_idle(rank))
		return;
	rank->busy_ns += STEP_NS;
	if (!work->collective) {
		work->left_ns -= work->left_ns < STEP_NS ? work->left_ns : STEP_NS;
		if (work->left_ns)
			return;
	} else {
		rank->begun = true;
		if (!job->apart && begun(work->number, job->ranks) < job->ranks)
			return;
		if (!joined_ns[work->number % QUEUE])
			joined_ns[work->number % QUEUE] = now_ns;
		if (now_ns < joined_ns[work->number % QUEUE] + job->collective_ns)
			return;
		joined_ns[(work->number + QUEUE / 2) % QUEUE] = 0;
		rank->done++;
		rank->begun = false;
	}
	rank->head++;
	rank->ended_ns = now_ns;
}

/* -- hosts ------------------------------------------------------------------------------------ */

static void look(struct rank *rank)
{
	if (is_idle(rank))
		gang_is_idle(gang_of(rank), &rank->self, rank->ended_ns, now_ns);
	else
		gang_is_busy(gang_of(rank), &rank->self, now_ns);
}

static uint64_t ask(const struct job *job, struct rank *rank)
{
	struct vgpu_region_bucket *bucket =
		&gang_of(rank)->devices[rank->self.entry->device].bucket;
	unsigned pct = pct_of(job, rank);
	uint64_t wait_ns;
	struct gang_sight sight = {.in_flight = !is_idle(rank)};

	sight.ahead_ns =
		(rank->tail - rank->head) *
		((job->kernels * job->kernel_ns + job->collective_ns) / (job->kernels + 1));

	look(rank);
	gang_count(gang_of(rank), now_ns);
	bucket_refill(bucket, pct, now_ns);
	sight.level_ns = bucket_level(bucket);
	sight.ready_ns = bucket_wait_ns(bucket, pct);
	wait_ns = gang_ask(gang_of(rank), &rank->self, &sight, now_ns);
	if (!wait_ns && gang_is_open(gang_of(rank)) &&
	    sight.ahead_ns > gang_ahead_most_ns(gang_of(rank), sight.level_ns, now_ns))
		return GANG_AHEAD_POLL_NS;
	return wait_ns;
}

static void launch(const struct job *job, struct rank *rank)
{
	struct work *work = &rank->queue[rank->tail % QUEUE];
	uint64_t jitter_ns = job->kernel_ns * job->jitter_pct / 100;

	*work = (struct work){.number = rank->launched};
	if (rank->phase < job->kernels + (rank == ranks ? job->more : 0)) {
		work->left_ns = job->kernel_ns - jitter_ns + chance(2 * jitter_ns);
		rank->phase++;
	} else {
		work->collective = true;
		rank->phase = 0;
		rank->launched++;
	}
	gang_is_busy(gang_of(rank), &rank->self, now_ns);
	if (work->collective)
		gang_launched_collective(gang_of(rank), &rank->self);
	rank->tail++;
	rank->host_ns = now_ns + job->call_ns + (chance(10) ? 0 : chance(job->stall_ns));
}

static void step_host(const struct job *job, struct rank *rank)
{
	uint64_t wait_ns;

	if (rank->stopped || now_ns < rank->host_ns)
		return;
	if (rank->launched - rank->done >= job->ahead) {
		if (is_idle(rank))
			look(rank);
		return;
	}
	wait_ns = pct_of(job, rank) < 100 ? ask(job, rank) : 0;
	if (!wait_ns)
		launch(job, rank);
	else if (wait_ns > GANG_POLL_NS || now_ns - words.group.shut_at > 2 * MS)
		rank->host_ns = now_ns + (wait_ns > NAP_NS ? wait_ns : NAP_NS);
}

/* -- runs ------------------------------------------------------------------------------------- */

static void begin(const struct job *job)
{
	memset(ranks, 0, sizeof(ranks));
	memset(&words, 0, sizeof(words));
	memset(regions, 0, sizeof(regions));
	memset(turns, 0, sizeof(turns));
	memset(dead, 0, sizeof(dead));
	memset(joined_ns, 0, sizeof(joined_ns));
	seed = 88172645463325252u;
	now_ns = NS_PER_S;
	closing_ns = closed_ns = 0;
	for (unsigned i = 0; i < job->ranks; i++) {
		gangs[i] = (struct gang){
			.words = &words.group, .table = &words, .devices = devices, .lives = lives};
		if (job->joint) {
			gangs[i].devices = regions[i];
			gangs[i].turns = turns[i];
			gangs[i].kind = GANG_OF_SLICES;
			gangs[i].slice = 1000 + i;
			gang_join_at(&gangs[i], &ranks[i].self, i, i + 1, 0);
		} else {
			assert_true(gang_join(&gangs[i], &ranks[i].self, i + 1, i));
		}
		ranks[i].host_ns = now_ns + (job->skewed ? i * 20 * US : 0);
	}
}

static void run(const struct job *job, uint64_t for_ns)
{
	uint64_t until_ns = now_ns + for_ns;

	for (; now_ns < until_ns; now_ns += STEP_NS) {
		bool any = false;

		for (unsigned i = 0; i < job->ranks; i++) {
			advance(job, &ranks[i]);
			any |= !is_idle(&ranks[i]);
		}
		for (unsigned i = 0; i < job->ranks; i++)
			step_host(job, &ranks[i]);
		closing_ns += words.group.shut_at && any ? STEP_NS : 0;
		closed_ns += words.group.shut_at && !any ? STEP_NS : 0;
	}
}

static uint32_t fewest_done(const struct job *job)
{
	uint32_t fewest = UINT32_MAX;

	for (unsigned i = 0; i < job->ranks; i++)
		fewest = ranks[i].done < fewest ? ranks[i].done : fewest;
	return fewest;
}

/* The percentage of for_ns in which the busiest device worked. */
static double busiest(const struct job *job, double for_ns)
{
	uint64_t most_ns = 0;

	for (unsigned i = 0; i < job->ranks; i++)
		most_ns = ranks[i].busy_ns > most_ns ? ranks[i].busy_ns : most_ns;
	return (double)most_ns / for_ns * 100;
}

static double bare_busy; /* what busiest() was of share()'s run without a quota */

/* The rate of the job's steps, as a percentage of the rate without a quota. *ret_busy: the
 * percentage of time in which the busiest device worked. */
static double share(struct job job, double *ret_busy)
{
	struct job limited = job;
	double bare;

	job.pct = 100;
	job.second_pct = 0;
	begin(&job);
	run(&job, 2 * NS_PER_S);
	bare = fewest_done(&job);
	bare_busy = busiest(&job, 2.0 * NS_PER_S);
	job = limited;
	begin(&job);
	run(&job, 10 * NS_PER_S);
	*ret_busy = busiest(&job, 10.0 * NS_PER_S);
	return fewest_done(&job) / 5.0 / bare * 100;
}
