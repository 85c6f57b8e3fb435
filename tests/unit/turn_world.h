/*
 * Shared by the tests of turns: slices on a modelled GPU, in virtual time that advances by
 * STEP_NS. So a test of seconds takes milliseconds, and the machine's load changes nothing.
 *
 * The device runs the work of one process at a time. It changes to another process when the
 * first has none left, or after QUANTUM_NS, and a change takes CHANGE_NS. A host launches a
 * kernel in LAUNCH_NS, and its sleeps end LATE_NS late. Each process is a struct turn of its
 * own, with a file descriptor of its own.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "note.h"
#include "place.h"
#include "turn.h"

#define US         NS_PER_US
#define MS         NS_PER_MS
#define STEP_NS    (5 * US)
#define LAUNCH_NS  (5 * US)
#define LATE_NS    (60 * US)
#define WAKE_NS    (30 * US) /* from a futex's wake-up until the sleeper runs */
#define QUANTUM_NS (2 * MS)
#define CHANGE_NS  (50 * US)
#define ACTORS     64
#define WAITS      20000

/* -- actors ----------------------------------------------------------------------------------- */

/* A process: its program, and its part of the GPU. With all members 0, it has no limit and is
 * always busy. */
struct actor {
	unsigned weight, limit_pct; /* 0: 100 */
	bool takes_rest;            /* its weight is the part that the limits of others leave */
	uint64_t kernel_ns;
	uint64_t key;      /* of its slice; 0: a slice of its own */
	unsigned batch;    /* launches after which it waits for its work; 0: it never waits */
	uint64_t think_ns; /* after a wait, it computes for that long */
	/* mean time between requests of `batch` kernels that it serves; 0: none */
	uint64_t request_ns;
	uint64_t from_ns, until_ns; /* it lives in this interval; 0: from the start, to the end */
	int error_pct;              /* its costs are too high by that, for ever */
	bool is_stopped;            /* it lives and does nothing */
	bool is_dead;
	bool is_out; /* it lives, and submits without taking turns */

	struct turn turn;
	struct turn_account account; /* used if the slice is its own */
	bool is_joined;
	uint64_t left_ns;  /* of its work on the device */
	uint64_t busy_ns;  /* device time that it had, in all */
	uint64_t ended_ns; /* when its work last ended */
	uint64_t due_ns;   /* when it expects its work to end */
	uint64_t launches;
	uint64_t next_ns; /* it continues then, or when the bell rings */
	uint32_t bell;
	bool is_asleep, waits_for_device, was_mine;
	int64_t credit_ns; /* credit of its own limit, used without turns */
	uint64_t credit_at;
	/* arrival of the request in service, 0: none; state of its random numbers */
	uint64_t arrived_ns, chance;
	uint64_t next_request_ns;
	uint64_t waits[WAITS]; /* duration of each request */
	unsigned wait_count;
	/* the longest wait for a turn, and the start of the present one; 0: none */
	uint64_t longest_ns, wait_from;
};

static struct actor actors[ACTORS];
static unsigned actor_count;
static uint64_t time_ns, device_from;
static unsigned device_of; /* the actor whose work the device runs */
static uint64_t changing_ns, overlap_ns;
static uint64_t moving_ns; /* additional time of each change, for moving memory */
static const char *world_path;
static bool world_is_damaged; /* the test wrote into the file */

UNUSED static struct actor *add(struct actor like)
{
	struct actor *actor = &actors[actor_count++];

	assert_true(actor_count <= ACTORS);
	*actor = like;
	actor->weight = like.weight ? like.weight : 100;
	actor->limit_pct = like.limit_pct ? like.limit_pct : 100;
	actor->chance = actor_count * 0x9e3779b97f4a7c15u;
	return actor;
}

UNUSED static struct actor *busy(unsigned weight, unsigned limit_pct, uint64_t kernel_ns)
{
	return add(
		(struct actor){.weight = weight, .limit_pct = limit_pct, .kernel_ns = kernel_ns});
}

static void join(struct actor *actor)
{
	uint64_t index = actor->key ? actor->key - 1 : (uint64_t)(actor - actors);
	struct turn_slice slice = {.key = index + 1,
				   .weight = actor->takes_rest ? 0 : actor->weight,
				   .limit_pct = actor->limit_pct,
				   .account = &actors[index].account};
	struct fault fault = {""};

	if (turn_join(&actor->turn, world_path, &slice, &fault) != 0)
		fail_msg("%s", fault.text);
	actor->is_joined = true;
	actor->next_ns = time_ns;
	actor->next_request_ns = time_ns;
	actor->credit_at = time_ns;
}

/* The slices leave, and the file goes; the next one to join makes another. */
UNUSED static void world_again(void)
{
	for (unsigned i = 0; i < actor_count && !world_is_damaged; i++)
		if (actors[i].is_joined && !actors[i].is_dead)
			assert_true(turn_file_is_valid(&actors[i].turn.file));
	for (unsigned i = 0; i < actor_count; i++)
		if (actors[i].is_joined && !actors[i].is_dead)
			turn_leave(&actors[i].turn, time_ns);
	memset(actors, 0, sizeof(actors));
	actor_count = 0;
	time_ns = 1000 * NS_PER_S;
	device_of = 0;
	changing_ns = overlap_ns = moving_ns = 0;
	world_is_damaged = false;
	unlink(world_path);
}

UNUSED static int world_make(void **state)
{
	if (place_make(state))
		return -1;
	world_path = here.path;
	world_again();
	return 0;
}

UNUSED static int world_remove(void **state)
{
	world_again();
	return place_remove(state);
}

#undef UNIT_SET_UP
#undef UNIT_TEAR_DOWN
#define UNIT_SET_UP    world_make
#define UNIT_TEAR_DOWN world_remove

/* The process dies: the kernel closes its file, and the driver ends its work. */
UNUSED static void end_of(struct actor *actor)
{
	turn_forget(&actor->turn);
	actor->is_dead = true;
	actor->left_ns = 0;
}

static uint32_t bell_of(const struct actor *actor)
{
	return actor->turn.file.file->slice[actor->turn.file.slice].bell;
}

static uint64_t chance_of(struct actor *actor)
{
	actor->chance = actor->chance * 6364136223846793005u + 1442695040888963407u;
	return actor->chance >> 33;
}

/* -- the device ------------------------------------------------------------------------------- */

static bool is_other_waiting(void)
{
	for (unsigned i = 0; i < actor_count; i++)
		if (i != device_of && actors[i].left_ns)
			return true;
	return false;
}

static void device_change(void)
{
	for (unsigned i = 1; i <= actor_count; i++) {
		unsigned next = (device_of + i) % actor_count;

		if (!actors[next].left_ns)
			continue;
		device_from = time_ns;
		if (next != device_of) {
			changing_ns = CHANGE_NS + moving_ns;
			device_from += moving_ns;
		}
		device_of = next;
		return;
	}
}

static void device_step(void)
{
	struct actor *at = &actors[device_of];

	if (changing_ns) {
		changing_ns -= STEP_NS < changing_ns ? STEP_NS : changing_ns;
		return;
	}
	if (!at->left_ns || (time_ns - device_from >= QUANTUM_NS && is_other_waiting())) {
		device_change();
		return;
	}
	overlap_ns += is_other_waiting() ? STEP_NS : 0;
	at->busy_ns += STEP_NS < at->left_ns ? STEP_NS : at->left_ns;
	at->left_ns -= STEP_NS < at->left_ns ? STEP_NS : at->left_ns;
	if (!at->left_ns)
		at->ended_ns = time_ns;
}

/* -- hosts ------------------------------------------------------------------------------------ */

static void sleep_for(struct actor *actor, uint64_t ns)
{
	actor->is_asleep = true;
	actor->next_ns = time_ns + ns + LATE_NS;
}

/* Applies the limit of a slice that is alone on the device. Returns 0, or the ns to wait. */
static uint64_t own_limit_ns(struct actor *actor)
{
	int64_t gained_ns = (int64_t)(time_ns - actor->credit_at) * actor->limit_pct / 100;

	actor->credit_at = time_ns;
	actor->credit_ns += gained_ns;
	if (actor->credit_ns > TURN_CREDIT_NS)
		actor->credit_ns = TURN_CREDIT_NS;
	if (actor->limit_pct >= 100 || actor->credit_ns > -4 * (int64_t)MS)
		return 0;
	return (uint64_t)-actor->credit_ns * 100 / actor->limit_pct;
}

static void submit(struct actor *actor, bool counts)
{
	uint64_t cost_ns = actor->kernel_ns * (uint64_t)(100 + actor->error_pct) / 100;

	if (!actor->error_pct)
		actor->due_ns = time_ns + actor->left_ns; /* its events tell when its work ends */
	actor->left_ns += actor->kernel_ns;
	actor->due_ns = (actor->due_ns > time_ns ? actor->due_ns : time_ns) + cost_ns;
	actor->launches++;
	actor->next_ns = time_ns + LAUNCH_NS;
	if (counts)
		turn_submitted(&actor->turn, actor->due_ns, time_ns);
	if (actor->batch && actor->launches % actor->batch == 0) {
		actor->waits_for_device = true;
		turn_will_wait(&actor->turn, time_ns);
	}
}

static void launch(struct actor *actor)
{
	bool alone = actor->is_out || turn_is_alone(&actor->turn);
	struct turn_answer answer = {.kind = TURN_ALONE};
	uint64_t wait_ns;

	if (actor->left_ns && !actor->error_pct && actor->wait_from)
		turn_submitted(&actor->turn, time_ns + actor->left_ns, time_ns);
	if (!actor->left_ns)
		turn_over(&actor->turn, actor->ended_ns, time_ns);
	if (!alone)
		answer = turn_ask(&actor->turn, time_ns);
	actor->was_mine = answer.kind == TURN_MINE;
	actor->bell = answer.bell;
	if (answer.kind == TURN_WAIT) {
		if (!actor->wait_from)
			actor->wait_from = time_ns;
		sleep_for(actor, answer.wait_ns);
		return;
	}
	if (actor->wait_from && time_ns - actor->wait_from > actor->longest_ns)
		actor->longest_ns = time_ns - actor->wait_from;
	actor->wait_from = 0;
	wait_ns = own_limit_ns(actor);
	if (answer.kind == TURN_ALONE && wait_ns && !actor->is_out) {
		turn_idle(&actor->turn, time_ns, time_ns);
		sleep_for(actor, wait_ns);
		actor->bell = bell_of(actor);
		return;
	}
	if (answer.kind == TURN_ALONE)
		actor->credit_ns -= (int64_t)actor->kernel_ns;
	submit(actor, !alone);
}

/* Continues after a wait for its work. */
static void finish(struct actor *actor)
{
	actor->waits_for_device = false;
	actor->next_ns = time_ns + 2 * STEP_NS + actor->think_ns;
	actor->due_ns = time_ns;
	turn_waited(&actor->turn, time_ns);
	turn_idle(&actor->turn, actor->ended_ns, time_ns);
	if (!actor->request_ns)
		return;
	if (actor->wait_count < WAITS)
		actor->waits[actor->wait_count++] = time_ns - actor->arrived_ns;
	actor->arrived_ns = 0;
}

/* Requests arrive at random; the time between two is at most twice the mean. Returns false if
 * there is none. */
static bool has_request(struct actor *actor)
{
	if (!actor->request_ns || actor->arrived_ns)
		return true;
	if (time_ns < actor->next_request_ns) {
		actor->next_ns = actor->next_request_ns;
		return false;
	}
	actor->arrived_ns = actor->next_request_ns;
	actor->next_request_ns += chance_of(actor) % (2 * actor->request_ns);
	return true;
}

static void leave(struct actor *actor)
{
	if (!actor->is_joined || actor->left_ns)
		return;
	turn_leave(&actor->turn, time_ns);
	actor->is_joined = false;
	actor->is_dead = true;
}

static void act(struct actor *actor)
{
	if (actor->is_dead || actor->is_stopped)
		return;
	if (actor->from_ns && time_ns < actor->from_ns)
		return;
	if (actor->until_ns && time_ns >= actor->until_ns) {
		leave(actor);
		return;
	}
	if (!actor->is_joined)
		join(actor);
	if (actor->is_asleep && bell_of(actor) != actor->bell && actor->next_ns > time_ns + WAKE_NS)
		actor->next_ns = time_ns + WAKE_NS;
	if (time_ns < actor->next_ns || (actor->waits_for_device && actor->left_ns))
		return;
	actor->is_asleep = false;
	if (actor->waits_for_device)
		finish(actor);
	else if (has_request(actor))
		launch(actor);
}

UNUSED static void go_on(uint64_t for_ns)
{
	uint64_t end_ns = time_ns + for_ns;

	while (time_ns < end_ns) {
		device_step();
		for (unsigned i = 0; i < actor_count; i++)
			act(&actors[i]);
		time_ns += STEP_NS;
	}
}

/* -- what they got ---------------------------------------------------------------------------- */

static uint64_t counted_ns; /* the time of the counters, if it has passed */

/* Resets the counters. */
UNUSED static void count_from_now(void)
{
	overlap_ns = 0;
	for (unsigned i = 0; i < actor_count; i++) {
		actors[i].busy_ns = 0;
		actors[i].wait_count = 0;
		actors[i].longest_ns = 0;
	}
}

/* The actor's part of the time that counts, in percent. */
UNUSED static double share(const struct actor *actor)
{
	return 100.0 * (double)actor->busy_ns / (double)counted_ns;
}

UNUSED static double share_of_all(void)
{
	double sum = 0;

	for (unsigned i = 0; i < actor_count; i++)
		sum += share(&actors[i]);
	return sum;
}

UNUSED static uint64_t longest_wait_ns(void)
{
	uint64_t longest_ns = 0;

	for (unsigned i = 0; i < actor_count; i++)
		if (actors[i].longest_ns > longest_ns)
			longest_ns = actors[i].longest_ns;
	return longest_ns;
}

/* The slices run for warm_ns, and then for ns that count. */
UNUSED static void measure_after(uint64_t warm_ns, uint64_t ns)
{
	go_on(warm_ns);
	count_from_now();
	go_on(ns);
	counted_ns = ns;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The time in ms that `percent` of the requests did not exceed. */
UNUSED static double quantile_ms(struct actor *actor, double percent)
{
	assert_true(actor->wait_count > 0);
	qsort(actor->waits, actor->wait_count, sizeof(*actor->waits), by_size);
	return (double)actor->waits[(unsigned)((actor->wait_count - 1) * percent / 100)] / 1e6;
}

UNUSED static void assert_between(const char *what, double value, double least, double most)
{
	if (value < least || value > most)
		fail_msg("%s: %.2f is not from %.2f to %.2f", what, value, least, most);
}

UNUSED static void assert_share(const struct actor *actor, double least, double most)
{
	char what[32];

	snprintf(what, sizeof(what), "share of actor %u", (unsigned)(actor - actors));
	assert_between(what, share(actor), least, most);
}
