/*
 * A process that does everything that can be done to a region, killed at its first step, then, all
 * over again, at its second, and so on to the last. Whatever it leaves: the next process opens the
 * region at once, has all of it for itself, and finds it whole.
 */
#include "aftermath.h"
#include "region_internal.h"
#include "region_share_walk.h"

#define LIMIT AFTERMATH_LIMIT

static const char *const step_names[] = {
#define NAME(name) #name,
	REGION_STEPS(NAME)
#undef NAME
};

struct run {
	char path[96];
	uint64_t kill_at;                   /* the step by count, from 1; 0: none */
	uint64_t count;                     /* steps passed */
	uint64_t last;                      /* the step it was killed at */
	uint64_t passed[REGION_STEP_COUNT]; /* how often each */
	uint64_t unmade;                    /* the file may be none yet, or no region any more */
};

static struct run *run; /* in shared memory */

static void count_step(enum region_step step)
{
	run->count++;
	run->last = step;
	run->passed[step]++;
	if (step == REGION_STEP_make_done)
		run->unmade = 0;
	if (run->count == run->kill_at)
		kill(getpid(), SIGKILL);
}

/* -- what it does ----------------------------------------------------------------------------- */

static void die_at_raise_total(enum region_step step)
{
	if (step == REGION_STEP_raise_total)
		kill(getpid(), SIGKILL);
}

/* Dies with the lock, halfway through a charge. */
static void die_holding(void *arg)
{
	struct region_setup setup = setup_of(LIMIT);
	struct region region = REGION_CLOSED;

	region_step_hook = NULL;
	region_forget(arg);
	CHECK(open_claimed(run->path, &setup, &region) == 0);
	CHECK(region_charge(&region, 0, REGION_MODULE, 3, 0) == 0);
	region_step_hook = die_at_raise_total;
	region_charge(&region, 0, REGION_DATA, 4, 0);
	_exit(1);
}

/* Dies with charges, but not with the lock. */
static void die_charged(void *arg)
{
	struct region_setup setup = setup_of(LIMIT);
	struct region region = REGION_CLOSED;

	region_step_hook = NULL;
	region_forget(arg);
	CHECK(open_claimed(run->path, &setup, &region) == 0);
	CHECK(region_charge(&region, 0, REGION_DATA, 40 * MIB, LIMIT) == 0);
	kill(getpid(), SIGKILL);
}

static void must_die(pid_t pid)
{
	CHECK(WIFSIGNALED(reap_status(pid)));
}

/* What one leaves behind who dies while the file gets its size. */
static void leave_zeros(void)
{
	static const char zeros[100];
	int fd;

	run->unmade = 1;
	fd = open(run->path, O_WRONLY | O_TRUNC);
	CHECK(fd >= 0 && write(fd, zeros, sizeof(zeros)) == (ssize_t)sizeof(zeros));
	close(fd);
}

static void work_out(void *arg)
{
	struct region_setup setup = setup_of(LIMIT), more = setup_from(0, 2, LIMIT);
	struct region region = REGION_CLOSED, second = REGION_CLOSED;
	uint64_t got;

	(void)arg;
	umask(077);
	region_step_hook = count_step;
	CHECK(open_claimed(run->path, &setup, &region) == 0); /* made */
	region_close(&region);
	leave_zeros();
	CHECK(open_claimed(run->path, &setup, &region) == 0); /* made again */
	CHECK(region_charge(&region, 0, REGION_DATA, 10 * MIB, LIMIT) == 0);
	CHECK(open_claimed(run->path, &more, &second) == 0); /* appended to */
	CHECK(region_charge(&second, 1, REGION_CONTEXT, 5, LIMIT) == 0);
	share_in_turn(&region, &second, 0, 77);
	CHECK(open_claimed(run->path, &more, &second) == 0);
	exit_in_turn(&region, &second, 0, 79);
	CHECK(region_charge(&region, 0, REGION_OFFSET, 12, 0) == 0);
	region_refund(&region, 0, REGION_DATA, 10 * MIB);
	region_close(&region);
	CHECK(open_claimed(run->path, &more, &region) == 0); /* reset */
	must_die(spawn(die_holding, &region));
	CHECK(region_charge(&region, 0, REGION_DATA, 30 * MIB, LIMIT) == 0); /* taken over */
	must_die(spawn(die_charged, &region));
	CHECK(region_charge_range(&region, 0, REGION_DATA, 70 * MIB, 90 * MIB, LIMIT, &got) == 0);
	CHECK(got == 70 * MIB); /* the dead were reaped for it */
	region_refund(&region, 0, REGION_DATA, got);
	region_close(&region);
}

/* -- what is left ----------------------------------------------------------------------------- */

static const char *where(void)
{
	static char text[96];

	snprintf(text, sizeof(text), "at step %d, %s", (int)run->kill_at,
		 run->count ? step_names[run->last] : "before the first step");
	return text;
}

static int work_out_until(uint64_t kill_at)
{
	unlink(run->path);
	memset(run->passed, 0, sizeof(run->passed));
	run->count = 0;
	run->last = 0;
	run->unmade = 1;
	run->kill_at = kill_at;
	return reap_status(spawn(work_out, NULL));
}

static void start(void **state)
{
	struct place *place = *state;

	run = run ? run : shared_memory(sizeof(*run));
	strcpy(run->path, place->path);
}

/* The list in steps.h is what is passed: all of it. */
UNIT_TEST(test_all_steps_are_reached)
{
	start(state);
	assert_int_equal(work_out_until(0), 0);
	for (unsigned step = 0; step < REGION_STEP_COUNT; step++)
		if (!run->passed[step])
			fail_msg("step %s is never reached", step_names[step]);
}

UNIT_TEST(test_killed_at_each)
{
	uint64_t kill_at;
	int status;

	start(state);
	for (kill_at = 1;; kill_at++) {
		status = work_out_until(kill_at);
		if (!WIFSIGNALED(status))
			break;
		if (kill_at % 2 == 0)
			assert_whole_for_an_onlooker(run->path, run->unmade, where());
		assert_whole_for_the_next(run->path, where());
	}
	assert_int_equal(status, 0); /* it came to its end */
	assert_true(kill_at > REGION_STEP_COUNT);
	print_message("killed at %d steps\n", (int)kill_at - 1);
}

/* Killed, and the one that comes after killed at its first steps as well. */
UNIT_TEST(test_killed_twice)
{
	start(state);
	for (uint64_t kill_at = 1; kill_at < 40; kill_at++) {
		int status = work_out_until(kill_at);

		assert_true(WIFSIGNALED(status));
		for (uint64_t again = 1; again <= 40; again += 3) {
			run->count = 0;
			run->kill_at = again;
			assert_true(WIFSIGNALED(reap_status(spawn(work_out, NULL))));
		}
		assert_whole_for_the_next(run->path, where());
	}
}
