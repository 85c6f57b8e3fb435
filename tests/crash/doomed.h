/*
 * The doomed: does all that can be done in a region, over and over, in a crowd (crowd.h), until it
 * comes to the step or the event at which something is to happen to it, and does.
 */
#pragma once

#include "crowd.h"

enum fate { KILLED, STOPPED, DELAYED };

#define DELAY_US 2000

/* In shared memory. */
struct doom {
	enum fate fate;
	enum region_step step; /* REGION_STEP_COUNT: the event in `watched` */
	bool founding;         /* it is alone then, and waits for company */
	struct watched watched;
	uint64_t arrived; /* it is there: by the doomed */
	uint64_t holds;   /* it has the lock: by the doomed */
	uint64_t company; /* the others are there */
};

static struct doom *doom;

/* -- what is in store for it --------------------------------------------------------------------
 */

static struct region doomed_first = REGION_CLOSED, doomed_second = REGION_CLOSED;
static bool has_lock; /* of the region: the doomed */

static void meet_fate(void)
{
	doom->holds = doom->founding || has_lock;
	FLAG_SET(doom->arrived);
	while (doom->founding && !FLAG_READ(doom->company))
		usleep(100);
	raise(doom->fate == KILLED ? SIGKILL : SIGSTOP);
}

/* Not the doomed alone: whoever passes. */
static void be_delayed(void)
{
	FLAG_SET(doom->arrived);
	usleep(DELAY_US);
}

static void look_out(enum region_step step)
{
	if (step == REGION_STEP_lock_taken || step == REGION_STEP_lock_taken_over)
		has_lock = true;
	else if (step == REGION_STEP_lock_released)
		has_lock = false;
	if (step != doom->step)
		return;
	if (doom->fate == DELAYED)
		be_delayed();
	else if (!FLAG_READ(doom->arrived))
		meet_fate();
}

/* -- what it does ----------------------------------------------------------------------------- */

static void begin_child(void)
{
	watched_end();
	sys_fault = NULL;
	region_step_hook = NULL;
	region_forget(&doomed_first);
	region_forget(&doomed_second);
}

static void die_at_raise_total(enum region_step step)
{
	if (step == REGION_STEP_raise_total)
		kill(getpid(), SIGKILL);
}

static void die_holding(void *arg)
{
	struct region region = REGION_CLOSED;

	(void)arg;
	begin_child();
	CHECK(open_claimed(crowd->path, NULL, &region) == 0);
	CHECK(region_charge(&region, 1, REGION_DATA, 5, 0) == 0);
	region_step_hook = die_at_raise_total;
	region_charge(&region, 1, REGION_DATA, 6, 0);
	_exit(1);
}

static void die_charged(void *arg)
{
	struct region region = REGION_CLOSED;

	(void)arg;
	begin_child();
	CHECK(open_claimed(crowd->path, NULL, &region) == 0);
	CHECK(region_charge(&region, 1, REGION_DATA, 5, 0) == 0);
	kill(getpid(), SIGKILL);
}

/* So that the table of shares has to grow, if there is room: more are exported than it ever had. */
static void export_many(struct region *region)
{
	static uint64_t key = 1000;
	unsigned count = region_shares_in_use(region->file) + 40;

	if (FLAG_READ(crowd->plain) || count > VGPU_SHARES_MAX / 2)
		return;
	for (unsigned i = 0; i < count; i++)
		share_export(region, 1, key + i, 1);
	for (unsigned i = 0; i < count; i++) {
		CHECK(region_share_withdraw(region, key + i, REGION_SHARE_AS_EXPORTED) == 0);
		region_refund(region, 1, REGION_DATA, 1);
	}
	key += count;
}

static void look_on(void)
{
	struct region view = REGION_CLOSED;
	struct fault fault;

	CHECK(region_view(crowd->path, &view, &fault) == 0);
	region_check(&view, NULL, NULL);
	region_close(&view);
}

static void do_everything(const struct region_setup *setup)
{
	CHECK(WIFSIGNALED(reap_status(spawn(die_holding, NULL))));
	CHECK(region_charge(&doomed_first, 1, REGION_DATA, 7, 0) == 0); /* taken over, perhaps */
	region_refund(&doomed_first, 1, REGION_DATA, 7);
	CHECK(WIFSIGNALED(reap_status(spawn(die_charged, NULL))));
	CHECK(region_reap(&doomed_first) >= 0);
	CHECK(open_claimed(crowd->path, setup, &doomed_second) == 0);
	share_in_turn(&doomed_first, &doomed_second, 1, 77);
	CHECK(open_claimed(crowd->path, setup, &doomed_second) == 0);
	exit_in_turn(&doomed_first, &doomed_second, 1, 79);
	export_many(&doomed_first);
	look_on();
}

static void be_doomed(void *arg)
{
	struct region_setup setup = setup_from(0, 2, LIMIT);
	struct holdings holdings = {{0}, {0, 0}, {{0, 0}}, 0};
	struct worker *self = arg;
	unsigned seed = (unsigned)getpid();

	region_step_hook = look_out;
	if (doom->step == REGION_STEP_COUNT) {
		watched_prepare();
		watched_begin(&doom->watched, meet_fate);
	}
	come(self, &setup, &doomed_first);
	while (region_find_device(&doomed_first, setup.device[1].uuid) != 1) {
		region_close(
			&doomed_first); /* between its coming and its claim, another reset it */
		come(self, &setup, &doomed_first);
	}
	while (!FLAG_READ(crowd->finish)) {
		for (unsigned i = 0; i < 20; i++)
			change_any(&doomed_first, self, &holdings, &seed);
		do_everything(&setup);
		__atomic_add_fetch(&self->operations, 1, __ATOMIC_SEQ_CST);
		if (FLAG_READ(crowd->freeze))
			stand_still(&doomed_first, self, &holdings);
	}
	give_all_back(&doomed_first, &holdings);
}
