/*
 * Processes at work in one region, and one of them is killed: at each named step, and at random.
 * The others go on within 100 ms, the limit is never passed, and when the dead have been reaped the
 * region's figures are those of the living, to the byte: with what they share counted once, for as
 * long as one of them has it.
 */
#include "region_internal.h"
#include "region_share_walk.h"

#define WORKERS  4
#define LIMIT    (64 * MIB)
#define HOLDINGS 8
#define IMPORTS  3

static const char *const step_names[] = {
#define NAME(name) #name,
	REGION_STEPS(NAME)
#undef NAME
};

/* What a worker has of shared memory. Keys are never used twice; 0 is none. */
struct shared {
	uint64_t key, bytes;
};

struct worker {
	uint64_t operations;
	uint64_t frozen; /* it stands still, with `held` and `shared` on the region's device 0 */
	uint64_t held;
	struct shared shared[1 + IMPORTS]; /* its export, and imports */
	uint64_t offered;                  /* the key of its export, for the others */
	pid_t pid;
};

/* The same of oneself. */
struct holdings {
	uint64_t held[HOLDINGS];
	struct shared exported, imported[IMPORTS];
	uint64_t exports; /* so many, ever */
};

/* In shared memory. The test writes but for what is said. */
struct crowd {
	char path[96];
	uint64_t freeze, finish, armed;
	enum region_step step;
	pid_t doomed;     /* who got to the step first, and dies there: by itself */
	uint64_t visited; /* the visitor came to its end: by it */
	struct worker workers[WORKERS];
};

static struct crowd *crowd;

/* -- those at work ---------------------------------------------------------------------------- */

/* Whoever is the first at the step is killed there. */
static void die_if_first(enum region_step step)
{
	pid_t nobody = 0;

	if (step == crowd->step && FLAG_READ(crowd->armed) &&
	    __atomic_compare_exchange_n(&crowd->doomed, &nobody, getpid(), false, __ATOMIC_SEQ_CST,
					__ATOMIC_SEQ_CST))
		kill(getpid(), SIGKILL);
}

static void stand_still(struct worker *worker, const struct holdings *holdings)
{
	worker->held = 0;
	for (unsigned i = 0; i < HOLDINGS; i++)
		worker->held += holdings->held[i];
	worker->shared[0] = holdings->exported;
	memcpy(worker->shared + 1, holdings->imported, sizeof(holdings->imported));
	FLAG_SET(worker->frozen);
	while (FLAG_READ(crowd->freeze))
		usleep(100);
	__atomic_store_n(&worker->frozen, 0, __ATOMIC_SEQ_CST);
}

/* The limit is such that charges are refused now and then, and so the dead are looked for. */
static void change_one(struct region *region, uint64_t *held, enum region_class class,
		       unsigned *seed)
{
	uint64_t bytes = 1 + (uint64_t)rand_r(seed) % (4 * MIB);

	if (*held) {
		region_refund(region, 0, class, *held);
		*held = 0;
	} else if (region_charge(region, 0, class, bytes, LIMIT) == 0) {
		*held = bytes;
	}
	MUST(region_used(region, 0) <= LIMIT);
}

/* Exports something of its own, or gives it up. */
static void change_export(struct region *region, struct worker *worker, struct holdings *holdings,
			  unsigned *seed)
{
	struct shared *exported = &holdings->exported;
	uint64_t bytes = 1 + (uint64_t)rand_r(seed) % (4 * MIB);
	int result;

	if (exported->key) {
		__atomic_store_n(&worker->offered, 0, __ATOMIC_SEQ_CST);
		result = region_share_withdraw(region, exported->key, REGION_SHARE_AS_EXPORTED);
		MUST(result == 0 || result == 1);
		if (result == 0)
			region_refund(region, 0, REGION_DATA, exported->bytes);
		exported->key = 0;
	} else if (region_charge(region, 0, REGION_DATA, bytes, LIMIT) == 0) {
		exported->key = (uint64_t)getpid() << 32 | ++holdings->exports;
		exported->bytes = bytes;
		MUST(region_share_export(region, 0, exported->key, bytes) == 0);
		__atomic_store_n(&worker->offered, exported->key, __ATOMIC_SEQ_CST);
	}
}

/* Opens what somebody offers, perhaps itself, perhaps one who is dead; or closes it. */
static void change_import(struct region *region, struct shared *imported, unsigned *seed)
{
	struct worker *of = &crowd->workers[(unsigned)rand_r(seed) % WORKERS];
	uint64_t key = __atomic_load_n(&of->offered, __ATOMIC_SEQ_CST), bytes;
	unsigned device;
	int result;

	if (imported->key) {
		region_share_import_end(region, imported->key);
		imported->key = 0;
	} else if (key) {
		result = region_share_import(region, key, &device, &bytes);
		MUST(result == 0 || (result == 1 && device == 0));
		if (result == 1)
			*imported = (struct shared){key, bytes};
	}
}

static void change_any(struct region *region, struct worker *worker, struct holdings *holdings,
		       unsigned *seed)
{
	unsigned which = (unsigned)rand_r(seed) % (HOLDINGS + 1 + IMPORTS);

	if (which < HOLDINGS)
		change_one(region, &holdings->held[which],
			   (enum region_class)(which % REGION_CLASSES), seed);
	else if (which == HOLDINGS)
		change_export(region, worker, holdings, seed);
	else
		change_import(region, &holdings->imported[which - HOLDINGS - 1], seed);
}

static void work(void *arg)
{
	struct worker *worker = arg;
	struct region_setup setup = setup_of(LIMIT);
	struct region region = REGION_CLOSED;
	struct holdings holdings = {{0}, {0, 0}, {{0, 0}}, 0};
	unsigned seed = (unsigned)getpid();

	region_step_hook = die_if_first;
	MUST(open_claimed(crowd->path, &setup, &region) == 0);
	while (!FLAG_READ(crowd->finish)) {
		change_any(&region, worker, &holdings, &seed);
		__atomic_add_fetch(&worker->operations, 1, __ATOMIC_SEQ_CST);
		if (FLAG_READ(crowd->freeze))
			stand_still(worker, &holdings);
	}
	for (unsigned which = 0; which < HOLDINGS; which++)
		region_refund(&region, 0, (enum region_class)(which % REGION_CLASSES),
			      holdings.held[which]);
	region_close(&region);
}

static void start_worker(unsigned i)
{
	memset(&crowd->workers[i], 0, sizeof(crowd->workers[i]));
	crowd->workers[i].pid = spawn(work, &crowd->workers[i]);
}

/* -- a visitor, that does what the others do not ------------------------------------------------
 */

static void die_at_raise_total(enum region_step step)
{
	if (step == REGION_STEP_raise_total)
		kill(getpid(), SIGKILL);
}

static void die_holding(void *arg)
{
	struct region region = REGION_CLOSED;

	region_step_hook = NULL;
	region_forget(arg);
	MUST(open_claimed(crowd->path, NULL, &region) == 0);
	MUST(region_charge(&region, 1, REGION_DATA, 5, 0) == 0);
	region_step_hook = die_at_raise_total;
	region_charge(&region, 1, REGION_DATA, 6, 0);
	_exit(1);
}

static void visit(void *arg)
{
	struct region_setup more = setup_from(0, 2, LIMIT);
	struct region region = REGION_CLOSED, second = REGION_CLOSED;

	(void)arg;
	region_step_hook = die_if_first;
	MUST(open_claimed(crowd->path, &more, &region) == 0);
	for (int i = 0; i < 3; i++) {
		MUST(WIFSIGNALED(reap_status(spawn(die_holding, &region))));
		MUST(region_charge(&region, 1, REGION_DATA, 7, 0) == 0);
		MUST(region_book(&region, 1, REGION_DATA, 0) == 0);
	}
	MUST(open_claimed(crowd->path, &more, &second) == 0);
	share_in_turn(&region, &second, 1, 77);
	region_close(&region);
	FLAG_SET(crowd->visited);
}

/* -- the test --------------------------------------------------------------------------------- */

static void start_crowd(void **state, enum region_step step)
{
	struct place *place = *state;

	crowd = crowd ? crowd : shared_memory(sizeof(*crowd));
	memset(crowd, 0, sizeof(*crowd));
	strcpy(crowd->path, place->path);
	crowd->step = step;
	unlink(crowd->path);
	for (unsigned i = 0; i < WORKERS; i++)
		start_worker(i);
	for (unsigned i = 0; i < WORKERS; i++)
		assert_true(reached(&crowd->workers[i].operations, 1, 5000));
}

/* The milliseconds until everybody but the doomed has gone on. */
static unsigned wait_for_progress(void)
{
	uint64_t start = clock_now_ns(), before[WORKERS];

	for (unsigned i = 0; i < WORKERS; i++)
		before[i] = __atomic_load_n(&crowd->workers[i].operations, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < WORKERS; i++)
		if (crowd->workers[i].pid != crowd->doomed &&
		    !reached(&crowd->workers[i].operations, before[i] + 10, 5000))
			fail_msg("worker %u is blocked after a death at %s", i,
				 step_names[crowd->step]);
	return (unsigned)((clock_now_ns() - start) / NS_PER_MS);
}

static bool shares_already(unsigned worker, uint64_t key)
{
	for (unsigned i = 0; i < worker; i++)
		for (unsigned j = 0; j <= IMPORTS; j++)
			if (crowd->workers[i].pid != crowd->doomed &&
			    crowd->workers[i].shared[j].key == key)
				return true;
	return false;
}

/* What the worker has of shared memory that none before it has. */
static uint64_t shared_first(unsigned worker)
{
	const struct shared *shared = crowd->workers[worker].shared;
	uint64_t bytes = 0;

	for (unsigned i = 0; i <= IMPORTS; i++) {
		bool twice = shared[i].key == 0 || shares_already(worker, shared[i].key);

		for (unsigned j = 0; j < i; j++)
			twice = twice || shared[j].key == shared[i].key;
		if (!twice)
			bytes += shared[i].bytes;
	}
	return bytes;
}

/* Everybody stands still; what the region says is what they hold. */
static void assert_figures(const char *after)
{
	struct region view = REGION_CLOSED;
	struct fault fault;
	uint64_t held = 0;

	FLAG_SET(crowd->freeze);
	for (unsigned i = 0; i < WORKERS; i++) {
		if (crowd->workers[i].pid == crowd->doomed)
			continue;
		assert_true(reached(&crowd->workers[i].frozen, 1, 5000));
		held += crowd->workers[i].held + shared_first(i);
	}
	assert_int_equal(region_view(crowd->path, &view, &fault), 0);
	assert_true(region_reap(&view) >= 0);
	region_check(&view, NULL, NULL); /* takes over what a dead holder left */
	if (count_wrong(&view) || region_used(&view, 0) != held)
		fail_msg("after %s: %llu bytes used, %llu held", after,
			 (unsigned long long)region_used(&view, 0), (unsigned long long)held);
	assert_int_equal(region_used(&view, 1), 0);
	region_close(&view);
	__atomic_store_n(&crowd->freeze, 0, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < WORKERS; i++)
		while (crowd->workers[i].pid != crowd->doomed &&
		       FLAG_READ(crowd->workers[i].frozen))
			usleep(100);
}

static void end_crowd(void)
{
	struct region view = REGION_CLOSED;
	struct fault fault;

	FLAG_SET(crowd->finish);
	for (unsigned i = 0; i < WORKERS; i++)
		if (crowd->workers[i].pid != crowd->doomed)
			assert_int_equal(reap_status(crowd->workers[i].pid), 0);
	assert_int_equal(region_view(crowd->path, &view, &fault), 0);
	assert_int_equal(region_used(&view, 0), 0);
	assert_int_equal(region_living(&view), 0);
	region_close(&view);
}

/* A region is made, and reset, where nobody else is: region_steps.c has those. */
static bool is_met_in_company(enum region_step step)
{
	return step >= REGION_STEP_append_written;
}

/* Arms the step and lets a visitor in. Returns the visitor's pid when somebody has died there. */
static pid_t wait_for_death(void)
{
	pid_t visitor;
	int status;

	FLAG_SET(crowd->armed);
	visitor = spawn(visit, NULL);
	while (!__atomic_load_n(&crowd->doomed, __ATOMIC_SEQ_CST) && !FLAG_READ(crowd->visited))
		usleep(100);
	if (!crowd->doomed)
		fail_msg("nobody reaches %s", step_names[crowd->step]);
	status = reap_status(crowd->doomed);
	assert_true(WIFSIGNALED(status));
	return visitor;
}

static void test_killed_at_each_step(void **state)
{
	unsigned slow = 0, slowest_ms = 0;

	for (unsigned step = 0; step < REGION_STEP_COUNT; step++) {
		pid_t visitor;
		unsigned ms;

		if (!is_met_in_company((enum region_step)step))
			continue;
		start_crowd(state, (enum region_step)step);
		visitor = wait_for_death();
		ms = wait_for_progress();
		slow += ms > 100;
		slowest_ms = ms > slowest_ms ? ms : slowest_ms;
		if (crowd->doomed != visitor)
			assert_int_equal(reap_status(visitor), 0);
		assert_figures(step_names[step]);
		wait_for_progress();
		end_crowd();
	}
	print_message("gone on after at most %u ms\n", slowest_ms);
	assert_true(slow <= 2); /* on a machine so busy that nobody runs for that long */
}

static void test_killed_at_random(void **state)
{
	unsigned seed = 1;

	start_crowd(state, REGION_STEP_COUNT);
	for (int round = 0; round < 300; round++) {
		unsigned i = (unsigned)rand_r(&seed) % WORKERS;

		usleep((unsigned)rand_r(&seed) % 4000);
		kill_child(crowd->workers[i].pid);
		start_worker(i);
		if (round % 20 == 0)
			assert_figures("kills at random");
	}
	wait_for_progress();
	assert_figures("kills at random");
	end_crowd();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_killed_at_each_step),
		TEST(test_killed_at_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
