/*
 * A program comes to each step that region/steps.h names, and there it is killed, stopped for a
 * while, or delayed: the library as it is, over the simulated driver. Alone, and beside eight other
 * programs that allocate and free with the quota full: they go on, the quota is kept, and when it
 * is over the ledger has what the living hold and nothing else.
 *
 * The program, the walker, does all that it takes to come to the steps, and asks the scene over its
 * wire for what others have to do for it: somebody who dies with the lock, or keeps it for a while;
 * a partner that shares memory with it. Where the eight would do its work for it, as when a dead
 * holder's lock is to be taken over, they stand still until the walker is at its step.
 *
 * It starts from a slice in one of three states: without a region, with one that the dead have
 * left, and with the partner in it. Each step is tested in the last of these in which the walker
 * comes to it.
 */
#include "crowd.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STOP_MS 300
#define AT_ONCE 4
#define SLOW_MS 100 /* so long nobody should be kept by a death: counted, and not judged */

static const char *const step_names[] = {
#define NAME(name) #name,
	REGION_STEPS(NAME)
#undef NAME
};

/* Steps that no program comes to. */
static const struct {
	enum region_step step;
	const char *reason;
} never[] = {
	{REGION_STEP_make_emptied, "only in the file of somebody who died while filling it: "
				   "crash.region_stores has that"},
	{REGION_STEP_release_cleared, "a process has its slot until it ends; vgpu's programs, "
				      "which do give slots back, have no steps"},
	{REGION_STEP_release_done, "likewise"},
};
/* -- one walk -----------------------------------------------------------------------------------
 */

enum state { STATE_WITHOUT_REGION, STATE_LEFT_BY_THE_DEAD, STATE_JOINED, STATES };

enum action { ACTION_NONE, ACTION_KILL, ACTION_STOP, ACTION_DELAY };

static const char *const action_names[] = {"", "kill", "stop", "delay"};

/* Where the walker is stopped, and nobody has the region's lock, or the file's first byte, for it:
 * others go on beside it. */
static bool others_go_on_at(enum region_step step)
{
	return step == REGION_STEP_claim_byte || step == REGION_STEP_borrow_byte ||
	       step == REGION_STEP_borrow_over || step == REGION_STEP_lock_marked ||
	       step == REGION_STEP_lock_waited || step == REGION_STEP_lock_found_dead ||
	       step == REGION_STEP_lock_released;
}

static struct walk {
	enum state state;
	enum action action;
	enum region_step step;
	uint64_t nth; /* time that it comes there */
	bool company; /* with the eight: before the walker starts, or, where nobody may be, later */
	struct faulty walker;
	bool befallen; /* the walker has come to its step */
} this;

static struct member partners; /* pid 0: there is none */

static void partner_start(void)
{
	env_set("CUDA_VISIBLE_DEVICES", "0");
	partners = member_start(partner);
	env_set("CUDA_VISIBLE_DEVICES", NULL);
	hear(partners.wire);
}

static void partner_end(void)
{
	if (!partners.pid)
		return;
	tell(partners.wire, ORDER_END);
	member_end(&partners);
	partners.pid = 0;
}

/* Somebody dies with the lock, and a context half charged. */
static void let_die_with_lock(void)
{
	struct faulty dies = faulty_start("holder", "kill raise_total", NULL);

	CHECK_EQUAL(faulty_wait(&dies), SIGKILL);
	faulty_close(&dies);
}

static struct faulty keeps_lock; /* report NULL: nobody does */

static void let_keep_lock(void)
{
	keeps_lock = faulty_start("holder", "delay raise_total", NULL);
	word_await(&keeps_lock.report->at_step, 1, "a holder comes to its step");
}

static void end_keeping_lock(void)
{
	if (!keeps_lock.report)
		return;
	CHECK_EQUAL(faulty_wait(&keeps_lock), 0);
	faulty_close(&keeps_lock);
}

static void pass_order(uint64_t order)
{
	int wire = this.walker.member.wire;
	CUipcMemHandle handle;

	if (!partners.pid)
		partner_start();
	tell(partners.wire, order);
	if (order == ORDER_OPEN) {
		handle = hear_handle(wire);
		tell_handle(partners.wire, &handle);
	}
	tell(wire, hear(partners.wire));
	if (order == ORDER_EXPORT) {
		handle = hear_handle(partners.wire);
		tell_handle(wire, &handle);
	}
}

static void do_order(uint64_t order)
{
	int wire = this.walker.member.wire;

	crowd_thaw();
	end_keeping_lock();
	switch (order) {
	case ORDER_STARTED:
		tell(wire, 1);
		break;
	case ORDER_DEAD_HOLDER:
		crowd_freeze(); /* or they would take it over */
		let_die_with_lock();
		tell(wire, 1);
		break;
	case ORDER_SLOW_HOLDER:
		let_keep_lock();
		tell(wire, 1);
		break;
	default:
		pass_order(order);
	}
}

/* -- what befalls the walker --------------------------------------------------------------------
 */

/* Of walks in company, from a death, or from when it is continued, until all have gone on. */
static unsigned slow, slowest_ms;
static enum region_step slowest_step;

static void await_progress_soon(const uint64_t before[WORKERS])
{
	uint64_t began = now_ms();
	unsigned ms;

	crowd_await(before);
	ms = (unsigned)(now_ms() - began);
	slow += ms > SLOW_MS;
	if (ms > slowest_ms) {
		slowest_ms = ms;
		slowest_step = this.step;
	}
}

static void stop_for_a_while(bool others_go_on)
{
	uint64_t before[WORKERS], began = now_ms();
	pid_t pid = this.walker.member.pid;
	int status;

	CHECK(waitpid(pid, &status, WUNTRACED) == pid);
	CHECK(WIFSTOPPED(status));
	crowd_note(before);
	if (others_go_on)
		crowd_await(before);
	if (now_ms() - began < STOP_MS)
		sleep_ms(STOP_MS - (unsigned)(now_ms() - began));
	CHECK(kill(pid, SIGCONT) == 0);
}

/* The walker has come to its step. */
static void befall(void)
{
	uint64_t before[WORKERS] = {0};
	bool in_time = crowded;

	this.befallen = true;
	crowd_thaw();
	if (this.company && !in_time)
		crowd_start(true);
	if (this.action == ACTION_STOP)
		stop_for_a_while(in_time && others_go_on_at(this.step));
	if (this.company && !in_time)
		crowd_meet();
	if (!crowded)
		return;
	crowd_note(before);
	if (in_time)
		await_progress_soon(before);
	else
		crowd_await(before);
}

/* Does what the walker asks for, until it ends. Its status. */
static int serve(void)
{
	uint64_t began = now_ms(), order;
	bool over = false;

	while (!over) {
		if (faulty_hear(&this.walker, 1, &order, &over))
			do_order(order);
		if (!this.befallen && word_read(&this.walker.report->at_step))
			befall();
		CHECK(now_ms() - began < 2 * WAIT_S * 1000);
	}
	crowd_thaw();
	end_keeping_lock();
	return faulty_wait(&this.walker);
}

static void walk_once(void)
{
	char plan[64];
	int status;

	this.befallen = false;
	if (this.state != STATE_WITHOUT_REGION) {
		crowd_freeze();
		let_die_with_lock(); /* for the onlooker that the walker begins as */
	}
	snprintf(plan, sizeof(plan), "%s %s %llu", action_names[this.action], step_names[this.step],
		 (unsigned long long)this.nth);
	this.walker = faulty_start("walk", this.action == ACTION_NONE ? NULL : plan, NULL);
	status = serve();
	if (status != (this.action == ACTION_KILL ? SIGKILL : 0) ||
	    this.befallen != (this.action != ACTION_NONE))
		fprintf(stderr, "steps: %s, from state %d: status %#x\n", plan, this.state,
			(unsigned)status);
	CHECK_EQUAL(status, this.action == ACTION_KILL ? SIGKILL : 0);
	CHECK_EQUAL(this.befallen, this.action != ACTION_NONE);
}

/* -- afterwards ---------------------------------------------------------------------------------
 */

/* Everybody stands still: what they hold is what the device says, and the ledger. */
static void compare_books(void)
{
	unsigned living = (crowded ? WORKERS : 0u) + (partners.pid ? 1u : 0u);
	uint64_t held;

	if (living == 0) { /* and maybe no region yet */
		CHECK_SOON_EQUAL(outside_used(0), 0);
		return;
	}
	crowd_freeze();
	if (partners.pid)
		member_ask(&partners, ORDER_CLEAN);
	held = crowd_held();
	CHECK_SOON_EQUAL(ledger_reap(), living);
	CHECK_SOON_EQUAL(outside_used(0), living * OUTSIDE + held);
	CHECK_AT_MOST(living * CHARGE + held, ledger_used(0));
	CHECK_AT_MOST(ledger_used(0), living * (CHARGE + GRANULE) + held);
	CHECK_EQUAL(ledger_slot(this.walker.member.pid), -1);
	crowd_thaw();
}

static void end_all(void)
{
	partner_end();
	if (crowded) {
		crowd_end();
		assert_nobody();
	} else {
		place_check_whole(QUOTA);
	}
}

/* -- scenes -------------------------------------------------------------------------------------
 */

static struct findings {
	uint64_t times[STATES][REGION_STEP_COUNT]; /* how often a walk comes to it */
	uint64_t walks, slow, slowest_ms, slowest_step, refusals;
} * findings;

/* A machine and a region of its own, in that state. */
static void prepare(void)
{
	place_set(QUOTA);
	if (this.state == STATE_JOINED)
		partner_start();
	if (this.company && this.state == STATE_JOINED) {
		crowd_start(false);
		crowd_meet();
	}
}

static void walk_watched(void)
{
	outside_peak_begin(0);
	walk_once();
	CHECK_AT_MOST(outside_peak(0), QUOTA + (WORKERS + 3) * GRANULE);
	compare_books();
	word_add(&findings->walks, 1);
}

static void note_findings(void)
{
	findings->slow += slow;
	if (slowest_ms > findings->slowest_ms) {
		findings->slowest_ms = slowest_ms;
		findings->slowest_step = slowest_step;
	}
	for (unsigned i = 0; i < WORKERS; i++)
		findings->refusals += word_read(&crowd->worker[i].refusals);
}

/* Each region is for a process of its own, which knows its figures. */
static void in_one_region(void (*body)(int wire))
{
	struct member member = member_start(body);

	member_end(&member);
}

static void count_steps(int wire)
{
	(void)wire;
	prepare();
	walk_watched();
	for (unsigned step = 0; step < REGION_STEP_COUNT; step++)
		findings->times[this.state][step] = this.walker.report->steps[step];
	end_all();
}

static void find_steps(void)
{
	findings = memory_share(sizeof(*findings));
	crowd = memory_share(sizeof(*crowd));
	env_set("VGPU_SIM_GPUS", "2x80G");
	memset(&this, 0, sizeof(this));
	for (this.state = 0; this.state < STATES; this.state++)
		in_one_region(count_steps);
	findings->walks = 0;
}

/* The state from which a walk comes to the step, or STATES. */
static enum state state_for(enum region_step step)
{
	enum state state = STATES;

	for (enum state i = 0; i < STATES; i++)
		if (findings->times[i][step])
			state = i;
	return state;
}

static bool is_never(enum region_step step)
{
	for (size_t i = 0; i < sizeof(never) / sizeof(*never); i++)
		if (never[i].step == step)
			return true;
	return false;
}

/* The list of those that no program comes to is right, too. */
TEST(all_are_come_to)
{
	bool wrong = false;

	find_steps();
	for (unsigned step = 0; step < REGION_STEP_COUNT; step++) {
		bool come_to = state_for((enum region_step)step) < STATES;

		if (come_to != is_never((enum region_step)step))
			continue;
		fprintf(stderr, "steps: %s is %s\n", step_names[step],
			come_to ? "come to, and listed as one that never is" : "never come to");
		wrong = true;
	}
	CHECK(!wrong);
	for (size_t i = 0; i < sizeof(never) / sizeof(*never); i++)
		printf("never come to: %s (%s)\n", step_names[never[i].step], never[i].reason);
}

static void walk_alone(int wire)
{
	(void)wire;
	prepare();
	walk_watched();
	end_all();
}

static bool is_for_many(enum region_step step)
{
	bool once = step == REGION_STEP_append_written || step == REGION_STEP_append_done ||
		    step == REGION_STEP_share_counted;

	return state_for(step) == STATE_JOINED && !once;
}

/* All the steps that can be come to time and again in one region, beside the same eight. */
static void walk_beside_many(int wire)
{
	(void)wire;
	prepare();
	for (unsigned step = 0; step < REGION_STEP_COUNT; step++) {
		if (!is_for_many((enum region_step)step))
			continue;
		this.step = (enum region_step)step;
		walk_watched();
	}
	end_all();
	note_findings();
}

static struct member walks[AT_ONCE];
static unsigned walk_count;

/* A few of them at once: they have nothing in common. */
static void start_walk_alone(void)
{
	struct member *place = &walks[walk_count++ % AT_ONCE];

	if (place->pid)
		member_end(place);
	*place = member_start(walk_alone);
}

/* How often somebody comes to it depends on who keeps the lock for how long: once is certain. */
static bool is_of_waiting(enum region_step step)
{
	return step == REGION_STEP_lock_marked || step == REGION_STEP_lock_waited ||
	       step == REGION_STEP_lock_found_dead;
}

struct befalls {
	const char *name;
	enum action action;
};

static void to_each_step_alone(const struct befalls *row)
{
	find_steps();
	this.action = row->action;
	for (unsigned step = 0; step < REGION_STEP_COUNT; step++) {
		uint64_t times;

		this.step = (enum region_step)step;
		this.state = state_for(this.step);
		if (this.state == STATES)
			continue;
		this.nth = 1;
		start_walk_alone();
		times = findings->times[this.state][step];
		this.nth = times / 2 + 1;
		if (times > 4 && !is_of_waiting(this.step))
			start_walk_alone();
	}
	for (unsigned i = 0; i < AT_ONCE; i++)
		member_end(&walks[i]);
	printf("%llu walks\n", (unsigned long long)word_read(&findings->walks));
}

static void to_each_step_in_a_crowd(const struct befalls *row)
{
	find_steps();
	this.action = row->action;
	this.nth = 1;
	this.company = true;
	for (unsigned step = 0; step < REGION_STEP_COUNT; step++) {
		this.step = (enum region_step)step;
		this.state = state_for(this.step);
		if (this.state < STATES && !is_for_many(this.step))
			in_one_region(walk_alone);
	}
	this.state = STATE_JOINED;
	in_one_region(walk_beside_many);
	printf("%llu walks; the others went on after at most %llu ms (%s), %llu times after more "
	       "than %d; they were refused %llu times\n",
	       (unsigned long long)findings->walks, (unsigned long long)findings->slowest_ms,
	       step_names[findings->slowest_step], (unsigned long long)findings->slow, SLOW_MS,
	       (unsigned long long)findings->refusals);
	CHECK(findings->refusals > 100);
}

static const struct befalls alone[] = {
	{"killed_alone", ACTION_KILL},
	{"stopped_alone", ACTION_STOP},
	{"delayed_alone", ACTION_DELAY},
};
TEST_TABLE(alone, to_each_step_alone);

static const struct befalls in_a_crowd[] = {
	{"killed_in_a_crowd", ACTION_KILL},
	{"stopped_in_a_crowd", ACTION_STOP},
	{"delayed_in_a_crowd", ACTION_DELAY},
};
TEST_TABLE(in_a_crowd, to_each_step_in_a_crowd);
