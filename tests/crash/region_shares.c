/*
 * A process that shares memory with one that lives on, in every way, killed at its first step,
 * then, all over again, at its second, and so on to the last. Whatever it leaves: the region holds
 * just what the other one has exported or has open, each of it once, and in that one's slot.
 */
#include "region_internal.h"
#include "region_share_walk.h"

static const char *const step_names[] = {
#define NAME(name) #name,
	REGION_STEPS(NAME)
#undef NAME
};

/* What the worker asks of the keeper, the process that lives on. */
enum favour { EXPORT, WITHDRAW, IMPORT, END };

#define KEYS        8
#define BYTES(key)  ((uint64_t)1 << (4 * (key)))
#define KEEPER_DATA 3 /* what the keeper holds beside all that */

struct run {
	char path[96];
	uint64_t kill_at; /* the step by count, from 1; 0: none */
	uint64_t count;   /* steps passed */
	uint64_t last;    /* the step it was killed at */
	uint64_t asked, answered;
	enum favour favour;
	uint64_t key;
};

static struct run *run; /* in shared memory */

/* -- the worker ------------------------------------------------------------------------------- */

static struct region keeper, first, second;

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
	MUST(reached(&run->answered, run->asked, 20000));
}

static void export_and_die(void *arg)
{
	const uint64_t *key = arg;
	struct region region = REGION_CLOSED;

	region_step_hook = NULL;
	region_forget(&first);
	region_forget(&second);
	MUST(open_claimed(run->path, NULL, &region) == 0);
	share_export(&region, 0, *key, BYTES(*key));
	kill(getpid(), SIGKILL);
}

static void leave_exported(uint64_t key)
{
	MUST(WIFSIGNALED(reap_status(spawn(export_and_die, &key))));
}

/* Exported by the worker, exported by the keeper: the charge goes round. */
static void go_round(void)
{
	share_export(&first, 0, 1, BYTES(1));
	share_import(&first, 1);
	ask(IMPORT, 1);
	MUST(region_share_withdraw(&first, 1, REGION_SHARE_AS_EXPORTED) == 1); /* to the keeper */
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
	MUST(region_reap(&first) == 1);
	ask(END, 3);
	region_share_import_end(&first, 3);
	leave_exported(4);
	share_import(&second, 4);
	ask(IMPORT, 4);
	MUST(region_reap(&first) == 1);
	leave_exported(5);
	MUST(region_reap(&second) == 1);
}

static void share_all(void *arg)
{
	(void)arg;
	region_forget(&keeper);
	region_step_hook = count_step;
	MUST(open_claimed(run->path, NULL, &first) == 0);
	MUST(open_claimed(run->path, NULL, &second) == 0);
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

static struct {
	unsigned imports;
	bool exported;
} kept[KEYS];

static void do_favour(void)
{
	uint64_t key = run->key;

	switch (run->favour) {
	case EXPORT:
		share_export(&keeper, 0, key, BYTES(key));
		kept[key].exported = true;
		break;
	case WITHDRAW:
		if (region_share_withdraw(&keeper, key, REGION_SHARE_AS_EXPORTED) == 0)
			region_refund(&keeper, 0, REGION_DATA, BYTES(key));
		kept[key].exported = false;
		break;
	case IMPORT:
		share_import(&keeper, key);
		kept[key].imports++;
		break;
	case END:
		region_share_import_end(&keeper, key);
		kept[key].imports--;
		break;
	}
}

static uint64_t kept_bytes(void)
{
	uint64_t bytes = KEEPER_DATA;

	for (unsigned key = 0; key < KEYS; key++)
		if (kept[key].imports || kept[key].exported)
			bytes += BYTES(key);
	return bytes;
}

static void fail_after(const char *what)
{
	fail_msg("killed at step %d, %s: %s; %llu bytes used, of them %llu the keeper's data, and "
		 "it keeps %llu",
		 (int)run->kill_at, step_names[run->last], what,
		 (unsigned long long)region_used(&keeper, 0),
		 (unsigned long long)region_own_usage(&keeper, 0).data,
		 (unsigned long long)kept_bytes());
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
		do_favour();
		__atomic_add_fetch(&run->answered, 1, __ATOMIC_SEQ_CST);
	}
	return status;
}

static void assert_counted_once(void)
{
	assert_true(region_reap(&keeper) >= 0);
	region_check(&keeper, NULL, NULL); /* takes over what a dead holder left */
	if (count_wrong(&keeper) != 0)
		fail_after("not whole");
	if (region_used(&keeper, 0) != kept_bytes() ||
	    region_own_usage(&keeper, 0).data != kept_bytes())
		fail_after("not counted once");
	assert_int_equal(region_living(&keeper), 1);
}

/* The keeper gives all of it up, and nothing is left, in the table neither. */
static void end_kept(void)
{
	for (run->key = 0; run->key < KEYS; run->key++) {
		run->favour = WITHDRAW;
		if (kept[run->key].exported)
			do_favour();
		run->favour = END;
		while (kept[run->key].imports)
			do_favour();
		if (region_used(&keeper, 0) != kept_bytes())
			fail_after("not given back");
	}
	for (unsigned i = 0; i < VGPU_SHARES_MAX; i++)
		assert_int_equal(keeper.file->own.shares[i].state, VGPU_SHARE_FREE);
	if (count_wrong(&keeper) != 0)
		fail_after("not whole when given back");
}

static void start_keeper(void **state)
{
	struct place *place = *state;
	struct region_setup setup = setup_of(GIB);

	run = run ? run : shared_memory(sizeof(*run));
	strcpy(run->path, place->path);
	memset(kept, 0, sizeof(kept));
	keeper = first = second = (struct region)REGION_CLOSED;
	assert_int_equal(open_claimed(run->path, &setup, &keeper), 0);
	assert_int_equal(region_charge(&keeper, 0, REGION_DATA, KEEPER_DATA, 0), 0);
}

/* -- the tests -------------------------------------------------------------------------------- */

static void test_killed_at_each(void **state)
{
	uint64_t kill_at;
	int status;

	start_keeper(state);
	for (kill_at = 1;; kill_at++) {
		status = share_until(kill_at);
		if (!WIFSIGNALED(status))
			break;
		assert_counted_once();
		end_kept();
	}
	assert_int_equal(status, 0); /* it came to its end */
	assert_counted_once();
	end_kept();
	print_message("killed at %d steps\n", (int)kill_at - 1);
	region_close(&keeper);
}

static void reap_counted(void *arg)
{
	struct region region = REGION_CLOSED;

	(void)arg;
	region_forget(&keeper);
	region_step_hook = count_step;
	MUST(open_claimed(run->path, NULL, &region) == 0);
	MUST(region_reap(&region) >= 0);
	region_close(&region);
}

/* Who clears up after it is killed over that as well, and so is who clears up after both, and so
 * on, each a few steps later than the one before. */
static void test_killed_over_repairs(void **state)
{
	uint64_t kill_at;

	start_keeper(state);
	for (kill_at = 1; WIFSIGNALED(share_until(kill_at)); kill_at++) {
		run->kill_at = 1 + kill_at % 6;
		do {
			run->kill_at += 6;
			run->count = 0;
		} while (WIFSIGNALED(reap_status(spawn(reap_counted, NULL))));
		assert_counted_once();
		end_kept();
	}
	region_close(&keeper);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_killed_at_each),
		TEST(test_killed_over_repairs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
