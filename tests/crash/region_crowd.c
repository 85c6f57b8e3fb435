/*
 * Eight processes at work in one region, and a ninth to whom something happens: at each named step
 * it is killed, or stopped for a while, or all are slow there; at a few it is stopped for longer
 * than anybody waits. The others go on within 100 ms, or, where they cannot, say so after
 * REGION_LOCK_PATIENCE_NS; the limit is never passed; and afterwards the region's figures are those
 * of the living, to the byte, with what they share counted once, and what the dead one had is free.
 */
#include "crowd.h"
#include "doomed.h"

#define GO_ON_NS (100 * NS_PER_MS)
#define STOP_US  300000

static const char *const step_names[REGION_STEP_COUNT + 1] = {
#define NAME(name) #name,
	REGION_STEPS(NAME)
#undef NAME
		"a store or a call",
};

static uint64_t slowest_ns; /* of all that was timed in a test */

/* -- how they are ----------------------------------------------------------------------------- */

static bool is_there(unsigned worker)
{
	return crowd->workers[worker].pid != 0;
}

/* How long the doomed, who may have the lock, was kept from running since the timing began; of one
 * that is killed, what the kernel needs to end it as well. */
static uint64_t doomed_began_ns, doomed_took_ns;

static uint64_t doomed_delayed_ns(void)
{
	return delayed_ns(crowd->workers[DOOMED].pid, doom->fate == KILLED);
}

/* Times what is done from now on. */
static void start_timing(void)
{
	doomed_took_ns = 0;
	doomed_began_ns = is_there(DOOMED) ? doomed_delayed_ns() : 0;
	__atomic_store_n(&crowd->since_ns, clock_now_ns(), __ATOMIC_SEQ_CST);
}

/* What a busy machine accounts for: how long those who may have had the lock were kept from running
 * meanwhile, and how long one who has nothing to do with the region was held up. */
static uint64_t excuse_ns(void)
{
	uint64_t excuse = FLAG_READ(crowd->control.starved_ns);

	for (unsigned i = 0; i < OTHERS; i++)
		if (FLAG_READ(crowd->workers[i].timing.starved_ns) > excuse)
			excuse = FLAG_READ(crowd->workers[i].timing.starved_ns);
	if (is_there(DOOMED))
		doomed_took_ns = doomed_delayed_ns() - doomed_began_ns;
	excuse += doomed_took_ns + FLAG_READ(crowd->control.longest_ns);
	return doom->founding ? OTHERS * excuse : excuse; /* one after the other then */
}

/* Asked once more, as the control may be in the midst of what held up both. */
static bool is_excused(uint64_t over_ns)
{
	if (over_ns <= excuse_ns())
		return true;
	reached(&crowd->control_rounds, FLAG_READ(crowd->control_rounds) + 2, LONG_MS);
	return over_ns <= excuse_ns();
}

/* None of the others' operations since start_timing took longer than that. */
static void assert_not_slower(uint64_t most_ns, const char *when)
{
	for (unsigned i = 0; i < OTHERS; i++) {
		uint64_t took_ns = FLAG_READ(crowd->workers[i].timing.longest_ns);

		if (took_ns > slowest_ns)
			slowest_ns = took_ns;
		if (took_ns > most_ns && !is_excused(took_ns - most_ns))
			fail_msg("%s at %s: worker %u was blocked for %llu ms, of which the "
				 "machine accounts for %llu",
				 when, step_names[doom->step], i,
				 (unsigned long long)(took_ns / NS_PER_MS),
				 (unsigned long long)(excuse_ns() / NS_PER_MS));
	}
}

/* Each of the others ends what it was at, and something that it began after start_timing. */
static void wait_for_progress(uint64_t most_ns, const char *when)
{
	uint64_t before[OTHERS];

	for (unsigned i = 0; i < OTHERS; i++)
		before[i] = FLAG_READ(crowd->workers[i].operations);
	for (unsigned i = 0; i < OTHERS; i++)
		if (!reached(&crowd->workers[i].operations, before[i] + 2, LONG_MS))
			fail_msg("%s at %s: worker %u is blocked", when, step_names[doom->step], i);
	assert_not_slower(most_ns, when);
}

/* -- what the region says -----------------------------------------------------------------------
 */

static bool shares_already(unsigned worker, uint64_t key)
{
	for (unsigned i = 0; i < worker; i++)
		for (unsigned j = 0; j <= IMPORTS; j++)
			if (is_there(i) && crowd->workers[i].shared[j].key == key)
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

/* Everybody comes to a halt: how much they hold. */
static uint64_t freeze(void)
{
	uint64_t held = 0;

	FLAG_SET(crowd->freeze);
	for (unsigned i = 0; i < WORKERS; i++)
		if (is_there(i)) {
			if (!reached(&crowd->workers[i].frozen, 1, LONG_MS))
				fail_msg("after %s: worker %u does not come to an end",
					 step_names[doom->step], i);
			held += crowd->workers[i].held + shared_first(i);
		}
	return held;
}

static void thaw(void)
{
	__atomic_store_n(&crowd->freeze, 0, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < WORKERS; i++)
		while (is_there(i) && FLAG_READ(crowd->workers[i].frozen))
			usleep(100);
}

/* What they hold is what the region says, once somebody has looked; and somebody who comes has all
 * the rest for himself, at once, and not a byte more. */
static void assert_figures(void)
{
	struct region region = REGION_CLOSED;
	uint64_t held = freeze(), took_ns, starved;
	struct stopwatch watch;

	assert_true(held <= LIMIT);
	assert_true(crowd->mortal || FLAG_READ(crowd->highest) <= LIMIT);
	start_timing();
	watch = stopwatch_start();
	assert_int_equal(open_claimed(crowd->path, NULL, &region), 0);
	if (region_charge(&region, 0, REGION_DATA, LIMIT - held, LIMIT) != 0)
		fail_msg("after %s: %llu bytes used, %llu held", step_names[doom->step],
			 (unsigned long long)region_used(&region, 0), (unsigned long long)held);
	took_ns = stopwatch_stop(&watch, 0, &starved);
	assert_true(took_ns <= GO_ON_NS || is_excused(took_ns - GO_ON_NS));
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 1, LIMIT), -EDQUOT);
	region_reap(&region);
	if (count_wrong(&region) || region_used(&region, 0) != LIMIT)
		fail_msg("after %s: %llu bytes used, %llu held and all the rest charged",
			 step_names[doom->step], (unsigned long long)region_used(&region, 0),
			 (unsigned long long)held);
	assert_int_equal(region_used(&region, 1), 0);
	region_close(&region);
	thaw();
}

/* -- beginning and end --------------------------------------------------------------------------
 */

/* Steps that only somebody who is alone comes to: the others come when it is there. */
static bool is_founding(enum region_step step)
{
	return step == REGION_STEP_file_created || step == REGION_STEP_file_opened ||
	       (step >= REGION_STEP_make_emptied && step <= REGION_STEP_reset_done);
}

/* Whoever makes a region asks /proc for users of one that was deleted, with the first byte locked.
 * The kernel answers in milliseconds or, on a busy machine, in seconds (to read /proc/locks is to
 * wait for all that set locks, and they for it); so the time until the others are in says nothing.
 */
static bool is_making(enum region_step step)
{
	return is_founding(step) && step < REGION_STEP_reset_hidden;
}

static bool is_of_reset(enum region_step step)
{
	return step >= REGION_STEP_reset_hidden && step <= REGION_STEP_reset_done;
}

static void leave_something(void *arg)
{
	struct region_setup setup = setup_from(7, 1, LIMIT);
	struct region region = REGION_CLOSED;

	(void)arg;
	CHECK(open_claimed(crowd->path, &setup, &region) == 0);
	share_export(&region, 0, 99, 1234);
	kill(getpid(), SIGKILL);
}

static void leave_zeros(void)
{
	int fd = open(crowd->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

	assert_true(fd >= 0 && write(fd, "\0", 1) == 1);
	close(fd);
}

static void start_doomed(void)
{
	struct worker *doomed = &crowd->workers[DOOMED];

	memset(doomed, 0, sizeof(*doomed));
	doomed->pid = spawn(be_doomed, doomed);
}

static void wait_for_arrival(void)
{
	if (!reached(&doom->arrived, 1, LONG_MS))
		fail_msg("nobody comes to %s", step_names[doom->step]);
}

/* While the region was founded some may have been, see is_making. */
static uint64_t refused_before;

static uint64_t refusals(void)
{
	uint64_t refused = 0;

	for (unsigned i = 0; i < OTHERS; i++)
		refused += FLAG_READ(crowd->workers[i].refused);
	return refused;
}

static void assert_nobody_was_refused(void)
{
	if (!is_founding(doom->step) && refusals() != refused_before)
		fail_msg("%s: somebody was refused", step_names[doom->step]);
}

static void wait_for_others(void)
{
	for (unsigned i = 0; i < OTHERS; i++)
		assert_true(reached(&crowd->workers[i].operations, 1, LONG_MS));
}

/* The doomed founds the region, and where it is doomed, the others come. */
static void start_founding(void)
{
	start_doomed();
	wait_for_arrival();
	crowd_start_others();
	for (unsigned i = 0; i < OTHERS; i++)
		assert_true(reached(&crowd->workers[i].opening, 1, LONG_MS));
	usleep(5000);
}

static void start_crowd(void **state, enum fate fate, enum region_step step)
{
	doom = doom ? doom : shared_memory(sizeof(*doom));
	memset(doom, 0, sizeof(*doom));
	doom->fate = fate;
	doom->step = step;
	doom->founding = is_founding(step) && fate != DELAYED;
	others_hook = fate == DELAYED ? look_out : NULL;
	crowd_prepare(*state);
}

static void start_all(void)
{
	if (is_of_reset(doom->step))
		assert_true(WIFSIGNALED(reap_status(spawn(leave_something, NULL))));
	else if (doom->step == REGION_STEP_make_emptied)
		leave_zeros();
	if (doom->founding) {
		start_founding();
		return;
	}
	crowd_start_others();
	if (!is_founding(doom->step))
		wait_for_others();
	refused_before = refusals();
	start_doomed();
	wait_for_arrival();
}

static void end_crowd(void)
{
	struct region view = REGION_CLOSED;
	struct fault fault;

	FLAG_SET(crowd->finish);
	for (unsigned i = 0; i < WORKERS; i++)
		if (is_there(i)) {
			assert_int_equal(reap_status(crowd->workers[i].pid), 0);
			crowd->workers[i].pid = 0;
		}
	assert_int_equal(reap_status(crowd->control_pid), 0);
	crowd->control_pid = 0;
	assert_int_equal(region_view(crowd->path, &view, &fault), 0);
	assert_int_equal(region_used(&view, 0), 0);
	assert_int_equal(region_living(&view), 0);
	region_close(&view);
}

static void reap_doomed(void)
{
	struct worker *doomed = &crowd->workers[DOOMED];
	uint64_t told_ns;
	siginfo_t info;
	int status;

	assert_int_equal(waitid(P_PID, (id_t)doomed->pid, &info, WEXITED | WNOWAIT), 0);
	doomed_took_ns = doomed_delayed_ns() - doomed_began_ns;
	told_ns = clock_now_ns();
	status = reap_status(doomed->pid);
	doomed_took_ns += clock_now_ns() - told_ns; /* see departure.h */
	doomed->pid = 0;
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static uint64_t time_to_go_on_ns(void)
{
	return is_making(doom->step) ? LONG_MS * NS_PER_MS : GO_ON_NS;
}

/* -- killed ----------------------------------------------------------------------------------- */

static int end_all(void **state)
{
	crowd_kill();
	return place_remove(state);
}
#undef UNIT_TEAR_DOWN
#define UNIT_TEAR_DOWN end_all

UNIT_TEST(test_killed)
{
	slowest_ns = 0;
	for (unsigned step = 0; step < REGION_STEP_COUNT; step++) {
		start_crowd(state, KILLED, (enum region_step)step);
		start_all();
		start_timing();
		FLAG_SET(doom->company);
		reap_doomed();
		wait_for_progress(time_to_go_on_ns(), "killed");
		assert_figures();
		assert_nobody_was_refused();
		end_crowd();
	}
	print_message("gone on after at most %u ms\n", (unsigned)(slowest_ns / NS_PER_MS));
}

/* Before a store or a call, wherever that is; others are killed anywhere (below). */
UNIT_TEST(test_killed_at_stores)
{
	unsigned seed = 3;

	if (!watched_is_possible())
		skip();
	start_crowd(state, KILLED, REGION_STEP_COUNT);
	crowd_start_others();
	wait_for_others();
	for (unsigned round = 0; round < 300; round++) {
		memset(doom, 0, sizeof(*doom));
		doom->step = REGION_STEP_COUNT;
		doom->watched.target.passes = (unsigned)rand_r(&seed) % 2000;
		doom->watched.target.events = 1 + (unsigned)rand_r(&seed) % 200;
		start_doomed();
		wait_for_arrival();
		start_timing();
		reap_doomed();
		wait_for_progress(GO_ON_NS, doom->watched.what);
		if (round % 10 == 0)
			assert_figures();
	}
	assert_figures();
	end_crowd();
}

UNIT_TEST(test_killed_at_random)
{
	unsigned seed = 1;

	start_crowd(state, KILLED, REGION_STEP_COUNT);
	crowd->busy = crowd->mortal = 1;
	crowd_start_others();
	wait_for_others();
	for (int round = 0; round < 300; round++) {
		unsigned i = (unsigned)rand_r(&seed) % OTHERS;

		usleep((unsigned)rand_r(&seed) % 4000);
		kill_child(crowd->workers[i].pid);
		crowd_start_worker(i);
		if (round % 20 == 0) {
			wait_for_others();
			assert_figures();
		}
	}
	end_crowd();
}

/* -- stopped and delayed ------------------------------------------------------------------------
 */

static void wait_for_stop(void)
{
	int status;

	assert_int_equal(waitpid(crowd->workers[DOOMED].pid, &status, WUNTRACED),
			 crowd->workers[DOOMED].pid);
	assert_true(WIFSTOPPED(status));
}

static void go_on(void)
{
	start_timing();
	kill(crowd->workers[DOOMED].pid, SIGCONT);
	wait_for_progress(time_to_go_on_ns(), "continued");
	assert_figures();
}

static void stop_at(void **state, enum region_step step)
{
	start_crowd(state, STOPPED, step);
	start_all();
	FLAG_SET(doom->company);
	wait_for_stop();
	start_timing();
	usleep(STOP_US);
	if (!doom->holds)
		wait_for_progress(GO_ON_NS, "stopped");
	go_on();
	assert_nobody_was_refused();
	end_crowd();
}

UNIT_TEST(test_stopped)
{
	for (unsigned step = 0; step < REGION_STEP_lock_taken; step++)
		stop_at(state, (enum region_step)step);
}

UNIT_TEST(test_stopped_with_the_lock)
{
	for (unsigned step = REGION_STEP_lock_taken; step < REGION_STEP_COUNT; step++)
		stop_at(state, (enum region_step)step);
}

UNIT_TEST(test_delayed)
{
	for (unsigned step = 0; step < REGION_STEP_COUNT; step++) {
		start_crowd(state, DELAYED, (enum region_step)step);
		start_all();
		usleep(50000);
		wait_for_others();
		assert_figures();
		assert_nobody_was_refused();
		end_crowd();
	}
}

/* -- patience --------------------------------------------------------------------------------- */

/* Somebody who comes meanwhile is told why he has to go. */
static void assert_newcomer_is_refused(void)
{
	struct region region = REGION_CLOSED;
	struct region_setup setup = setup_of(LIMIT);
	struct fault fault = {""};
	int error = region_open(crowd->path, doom->founding ? &setup : NULL, &region, &fault);

	if (!error)
		error = region_claim(&region, &fault);
	assert_int_equal(error, -ETIMEDOUT);
	assert_non_null(strstr(fault.text, "is it stopped?"));
	assert_int_equal(region.slot, -1);
	region_close(&region);
}

static void try_patience_at(void **state, enum region_step step)
{
	start_crowd(state, STOPPED, step);
	crowd->plain = 1; /* what could not be given up in time is counted until its slot ends */
	start_all();
	start_timing();
	FLAG_SET(doom->company);
	wait_for_stop();
	assert_true(doom->holds);
	assert_newcomer_is_refused();
	for (unsigned i = 0; i < OTHERS; i++)
		if (!reached(&crowd->workers[i].refused, 1, LONG_MS))
			fail_msg("stopped at %s: worker %u is not refused", step_names[step], i);
	assert_true(FLAG_READ(crowd->highest) <= LIMIT);
	assert_not_slower(REGION_LOCK_PATIENCE_NS + GO_ON_NS, "stopped");
	go_on();
	end_crowd();
}

UNIT_TEST(test_patience)
{
	static const enum region_step steps[] = {
		REGION_STEP_make_filled, REGION_STEP_reset_slots, REGION_STEP_lock_taken,
		REGION_STEP_raise_total, REGION_STEP_clear_half,  REGION_STEP_move_raised,
	};

	for (unsigned i = 0; i < sizeof(steps) / sizeof(*steps); i++)
		try_patience_at(state, steps[i]);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "test_killed_at_stores") == 0 && !watched_is_possible())
		return 77;
	return unit_main(argc, argv);
}
