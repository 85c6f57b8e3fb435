/*
 * Two processes that are both pid 1, each in a pid namespace of its own, and a third on the host,
 * all at one region. One of the two is killed, in turn, at a step of a change that the lock guards,
 * or at random, and comes again. Whoever waits for the lock then must find the dead holder dead,
 * though a process with its pid and tid lives; and never a living one, though one with its pid and
 * tid has died.
 */
#include "region_fixture.h"
#include "region_internal.h"
#include "region_long_dead.h"

#include "spaces.h"

#define IN_SPACES 2 /* workers 0 and 1; the last one is on the host */
#define WORKERS   3
#define LIMIT     (64 * MIB)
#define HOLDINGS  4
#define ROUNDS    304

/* In shared memory: of the worker, but for `armed`, by the test. */
struct worker {
	uint64_t operations;
	uint64_t armed;  /* 1 + the step at which it dies */
	uint64_t frozen; /* it stands still and holds `held` */
	uint64_t held;
	int slot;
	pid_t pid; /* by the test: as the host has it */
};

struct pod {
	char path[96];
	uint64_t freeze;
	struct worker workers[WORKERS];
};

static struct pod *pod;

/* -- those at work ---------------------------------------------------------------------------- */

static struct worker *self;

static void die_if_armed(enum region_step step)
{
	if (FLAG_READ(self->armed) == (uint64_t)step + 1)
		kill(getpid(), SIGKILL);
}

/* A process that is pid 1 survives a signal of its own, even this one: so it asks for another's. */
static void die_as_init(enum region_step step)
{
	if (FLAG_READ(self->armed) != (uint64_t)step + 1)
		return;
	FLAG_SET(self->frozen);
	for (;;)
		pause();
}

static void stand_still(struct region *region, const uint64_t held[HOLDINGS])
{
	while (region_is_late(region)) /* the next change makes what could not be made then */
		CHECK(region_charge(region, 0, REGION_DATA, 0, 0) == 0);
	self->held = 0;
	for (unsigned i = 0; i < HOLDINGS; i++)
		self->held += held[i];
	FLAG_SET(self->frozen);
	while (FLAG_READ(pod->freeze))
		usleep(100);
	__atomic_store_n(&self->frozen, 0, __ATOMIC_SEQ_CST);
}

/* Asks again for as long as somebody living keeps the region, who is stopped for seconds where the
 * machine is busy. */
static void come(const struct region_setup *setup, struct region *region)
{
	struct fault fault;
	int error;

	while ((error = region_open(pod->path, setup, region, &fault)) == -ETIMEDOUT)
		;
	CHECK(error == 0);
	while ((error = region_claim(region, &fault)) == -ETIMEDOUT)
		;
	CHECK(error == 0);
	self->slot = region->slot;
}

/* Now and then the slot is given back and another claimed, for the steps of that. */
static void begin_anew(struct region *region, uint64_t held[HOLDINGS])
{
	region_close(region);
	memset(held, 0, HOLDINGS * sizeof(*held));
	come(NULL, region);
}

static void change(struct region *region, unsigned which, uint64_t held[HOLDINGS], unsigned *seed)
{
	enum region_class class = (enum region_class)(which % REGION_CLASSES);
	uint64_t bytes = 1 + (uint64_t)rand_r(seed) % (12 * MIB);

	if (held[which]) {
		region_refund(region, 0, class, held[which]);
		held[which] = 0;
	} else if (region_charge(region, 0, class, bytes, LIMIT) == 0) {
		held[which] = bytes;
	}
	CHECK(region_used(region, 0) <= LIMIT);
}

static void work(void *arg)
{
	struct region_setup setup = setup_of(LIMIT);
	struct region region = REGION_CLOSED;
	uint64_t held[HOLDINGS] = {0};
	unsigned seed;

	self = arg;
	seed = (unsigned)clock_now_ns();
	CHECK((self == &pod->workers[IN_SPACES]) == (getpid() != 1));
	region_step_hook = getpid() == 1 ? die_as_init : die_if_armed;
	come(&setup, &region);
	for (;;) {
		change(&region, (unsigned)rand_r(&seed) % HOLDINGS, held, &seed);
		__atomic_add_fetch(&self->operations, 1, __ATOMIC_SEQ_CST);
		if (FLAG_READ(pod->freeze))
			stand_still(&region, held);
		if (rand_r(&seed) % 500 == 0)
			begin_anew(&region, held);
	}
}

static void start_worker(unsigned i)
{
	memset(&pod->workers[i], 0, sizeof(pod->workers[i]));
	if (i < IN_SPACES)
		space_begin();
	pod->workers[i].pid = spawn(work, &pod->workers[i]);
	if (i < IN_SPACES)
		space_end();
	assert_true(reached(&pod->workers[i].operations, 1, LONG_MS));
}

/* -- the test --------------------------------------------------------------------------------- */

static const enum region_step steps[] = {REGION_STEP_lock_taken,     REGION_STEP_raise_total,
					 REGION_STEP_raise_used,     REGION_STEP_lower_class,
					 REGION_STEP_lock_releasing, REGION_STEP_claim_byte,
					 REGION_STEP_claim_filled};

#define STEPS (sizeof(steps) / sizeof(*steps))

/* Everybody but the victim goes on. */
static void wait_for_progress(unsigned victim)
{
	for (unsigned i = 0; i < WORKERS; i++) {
		struct worker *worker = &pod->workers[i];

		if (i != victim && !reached(&worker->operations, worker->operations + 5, LONG_MS))
			fail_msg("worker %u is blocked", i);
	}
}

/* The victim stops at the step, with the lock or without, for the others to run into it; nobody may
 * take it for dead as long as it only stands there. Or it is killed wherever it is. */
static void kill_at(struct worker *victim, enum region_step step, bool at_random, unsigned *seed)
{
	struct region view = REGION_CLOSED;
	struct fault fault;
	uint32_t takeovers;

	if (at_random) {
		usleep((unsigned)rand_r(seed) % 2000);
	} else {
		__atomic_store_n(&victim->armed, (uint64_t)step + 1, __ATOMIC_SEQ_CST);
		assert_true(reached(&victim->frozen, 1, LONG_MS));
		assert_int_equal(region_view(pod->path, &view, &fault), 0);
		takeovers = view.file->own.takeovers;
		usleep(7000); /* longer than waiters wait before they ask after the holder */
		assert_int_equal(view.file->own.takeovers, takeovers);
		region_close(&view);
	}
	kill_child(victim->pid);
}

static void assert_figures(unsigned dead, unsigned round)
{
	struct region view = REGION_CLOSED;
	struct fault fault;
	uint64_t held = 0;

	FLAG_SET(pod->freeze);
	for (unsigned i = 0; i < WORKERS; i++)
		if (i != dead) {
			assert_true(reached(&pod->workers[i].frozen, 1, LONG_MS));
			held += pod->workers[i].held;
		}
	assert_int_equal(region_view(pod->path, &view, &fault), 0);
	assume_long_dead(&view);
	assert_true(region_reap(&view) >= 0);
	region_check(&view, NULL, NULL); /* takes over what a dead holder left */
	if (count_wrong(&view) || region_used(&view, 0) != held)
		fail_msg("round %u: %llu bytes used, %llu held", round,
			 (unsigned long long)region_used(&view, 0), (unsigned long long)held);
	assert_int_equal(region_living(&view), WORKERS - 1);
	for (unsigned i = 0; i < WORKERS; i++)
		if (i != dead) {
			unsigned slot = (unsigned)pod->workers[i].slot;

			assert_true(region_slot_alive(&view, slot));
			assert_int_equal(view.file->hami.slots[slot].pid,
					 i < IN_SPACES ? 1 : pod->workers[i].pid);
		}
	region_close(&view);
	__atomic_store_n(&pod->freeze, 0, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < WORKERS; i++)
		while (i != dead && FLAG_READ(pod->workers[i].frozen))
			usleep(100);
}

UNIT_TEST(test_killed_in_turn)
{
	struct place *place = *state;
	unsigned seed = 5;

	pod = shared_memory(sizeof(*pod));
	strcpy(pod->path, place->path);
	for (unsigned i = 0; i < WORKERS; i++)
		start_worker(i);
	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned victim = round % IN_SPACES;
		unsigned kind = round / IN_SPACES % (STEPS + 1);

		kill_at(&pod->workers[victim], steps[kind % STEPS], kind == STEPS, &seed);
		wait_for_progress(victim);
		assert_figures(victim, round);
		start_worker(victim);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		kill_child(pod->workers[i].pid);
}

/* The one on the host kills itself at the step: no signal from outside, no waiting. */
UNIT_TEST(test_killed_on_the_host)
{
	struct place *place = *state;

	pod = shared_memory(sizeof(*pod));
	strcpy(pod->path, place->path);
	for (unsigned i = 0; i < WORKERS; i++)
		start_worker(i);
	for (unsigned round = 0; round < 2 * STEPS; round++) {
		struct worker *victim = &pod->workers[IN_SPACES];

		__atomic_store_n(&victim->armed, (uint64_t)steps[round % STEPS] + 1,
				 __ATOMIC_SEQ_CST);
		assert_true(WIFSIGNALED(reap_status(victim->pid)));
		wait_for_progress(IN_SPACES);
		assert_figures(IN_SPACES, round);
		start_worker(IN_SPACES);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		kill_child(pod->workers[i].pid);
}

int main(int argc, char **argv)
{
	return spaces_main(unit_main, argc, argv);
}
