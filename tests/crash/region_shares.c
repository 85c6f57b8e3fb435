/*
 * A process that shares memory with one that lives on, in every way, killed at its first step,
 * then, all over again, at its second, and so on to the last. Whatever it leaves: the region holds
 * just what the other one has exported or has open, each of it once, and in that one's slot.
 */
#include "keeper.h"
#include "region_internal.h"

static const char *const step_names[] = {
#define NAME(name) #name,
	REGION_STEPS(NAME)
#undef NAME
};

struct run {
	char path[96];
	uint64_t kill_at; /* the step by count, from 1; 0: none */
	uint64_t count;   /* steps passed */
	uint64_t last;    /* the step it was killed at */
	uint64_t asked, answered;
	enum favour favour; /* that the worker asks of the keeper */
	uint64_t key;
};

static struct run *run; /* in shared memory */

/* -- the worker ------------------------------------------------------------------------------- */

static struct region first, second;

static void count_step(enum region_step step)
{
	run->count++;
	run->last = step;
	if (run->count == run->kill_at)
		kill(getpid(), SIGKILL);
}

static void ask(enum favour favour, uint64_t key)
{
	run->favour = favour;
	run->key = key;
	__atomic_add_fetch(&run->asked, 1, __ATOMIC_SEQ_CST);
	CHECK(reached(&run->answered, run->asked, LONG_MS));
}

static void export_and_die(void *arg)
{
	const uint64_t *key = arg;
	struct region region = REGION_CLOSED;

	region_step_hook = NULL;
	region_forget(&first);
	region_forget(&second);
	CHECK(open_claimed(run->path, NULL, &region) == 0);
	share_export(&region, 0, *key, BYTES(*key));
	kill(getpid(), SIGKILL);
}

static void leave_exported(uint64_t key)
{
	CHECK(WIFSIGNALED(reap_status(spawn(export_and_die, &key))));
}

/* Exported by the worker, exported by the keeper: the charge goes round. */
static void go_round(void)
{
	share_export(&first, 0, 1, BYTES(1));
	share_import(&first, 1);
	ask(IMPORT, 1);
	CHECK(region_share_withdraw(&first, 1, REGION_SHARE_AS_EXPORTED) == 1); /* to the keeper */
	share_import(&second, 1);
	ask(END, 1); /* and back */
	ask(IMPORT, 1);
	region_share_import_end(&first, 1);
	region_share_import_end(&second, 1);
	ask(END, 1);
	ask(EXPORT, 2);
	share_import(&first, 2);
	share_import(&second, 2);
	share_import(&second, 2);
	ask(WITHDRAW, 2); /* to the worker */
	ask(IMPORT, 2);
	region_share_import_end(&first, 2);
	region_share_import_end(&second, 2);
	region_share_import_end(&second, 2);
	ask(END, 2);
}

static void meet_the_dead(void)
{
	leave_exported(3);
	ask(IMPORT, 3);
	share_import(&first, 3);
	CHECK(region_reap(&first) == 1);
	ask(END, 3);
	region_share_import_end(&first, 3);
	leave_exported(4);
	share_import(&second, 4);
	ask(IMPORT, 4);
	CHECK(region_reap(&first) == 1);
	leave_exported(5);
	CHECK(region_reap(&second) == 1);
}

static void share_all(void *arg)
{
	(void)arg;
	region_forget(&keeper);
	region_step_hook = count_step;
	CHECK(open_claimed(run->path, NULL, &first) == 0);
	CHECK(open_claimed(run->path, NULL, &second) == 0);
	go_round();
	meet_the_dead();
	share_export(&first, 0, 6, BYTES(6));
	share_import(&second, 6);
	ask(IMPORT, 6);
	share_export(&second, 0, 7, BYTES(7));
	ask(IMPORT, 7);
	region_close(&first);
	region_close(&second);
}

/* -- the keeper ------------------------------------------------------------------------------- */

static const char *where(void)
{
	static char text[96];

	snprintf(text, sizeof(text), "at step %d, %s", (int)run->kill_at, step_names[run->last]);
	return text;
}

/* Does the worker's favours until it ends; returns how. */
static int share_until(uint64_t kill_at)
{
	pid_t pid;
	int status;

	run->kill_at = kill_at;
	run->count = run->asked = run->answered = 0;
	pid = spawn(share_all, NULL);
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (__atomic_load_n(&run->asked, __ATOMIC_SEQ_CST) == run->answered) {
			usleep(20);
			continue;
		}
		keeper_do(run->favour, run->key);
		__atomic_add_fetch(&run->answered, 1, __ATOMIC_SEQ_CST);
	}
	see_off(pid);
	return status;
}

static void start(void **state)
{
	struct place *place = *state;

	run = run ? run : shared_memory(sizeof(*run));
	strcpy(run->path, place->path);
	first = second = (struct region)REGION_CLOSED;
	keeper_start(run->path);
}

/* -- the tests -------------------------------------------------------------------------------- */

UNIT_TEST(test_killed_at_each)
{
	uint64_t kill_at;
	int status;

	start(state);
	for (kill_at = 1;; kill_at++) {
		status = share_until(kill_at);
		if (!WIFSIGNALED(status))
			break;
		assert_counted_once(where());
		keeper_give_up(where());
	}
	assert_int_equal(status, 0); /* it came to its end */
	assert_counted_once(where());
	keeper_give_up(where());
	print_message("killed at %d steps\n", (int)kill_at - 1);
	region_close(&keeper);
}

static void reap_counted(void *arg)
{
	struct region region = REGION_CLOSED;

	(void)arg;
	region_forget(&keeper);
	region_step_hook = count_step;
	CHECK(open_claimed(run->path, NULL, &region) == 0);
	CHECK(region_reap(&region) >= 0);
	region_close(&region);
}

/* Who clears up after it is killed over that as well, and so is who clears up after both, and so
 * on, each a few steps later than the one before. */
UNIT_TEST(test_killed_over_repairs)
{
	uint64_t kill_at;

	start(state);
	for (kill_at = 1; WIFSIGNALED(share_until(kill_at)); kill_at++) {
		run->kill_at = 1 + kill_at % 6;
		do {
			run->kill_at += 6;
			run->count = 0;
		} while (WIFSIGNALED(reap_status(spawn(reap_counted, NULL))));
		assert_counted_once(where());
		keeper_give_up(where());
	}
	region_close(&keeper);
}
