/*
 * Memory of which a descriptor is left somewhere: who exports it, who takes it over from the dead,
 * and who imports it, are killed at their first step, then, all over again, at their second, and so
 * on to the last. From its export on, the memory is charged once to somebody who lives, until the
 * descriptor is closed.
 */
#include "region_fixture.h"
#include "region_internal.h"

#define BYTES 4096

struct run {
	uint64_t kill_at; /* the step by count, from 1; 0: none */
	uint64_t count;   /* steps passed */
	struct region_descriptors key;
	uint64_t exported; /* 1: for certain */
};

static struct run *run; /* in shared memory */
static char path[96], driver_path[128];
static struct region keeper = REGION_CLOSED;
static int driver;     /* every process has the driver's file open */
static int descriptor; /* the one that is left: the test's, and every child's */

static void count_step(enum region_step step)
{
	(void)step;
	if (++run->count == run->kill_at)
		kill(getpid(), SIGKILL);
}

/* -- workers ----------------------------------------------------------------------------------- */

static struct region mine;

static void join(void)
{
	region_forget(&keeper);
	mine = (struct region)REGION_CLOSED;
	CHECK(open_claimed(path, NULL, &mine) == 0);
}

static void export_it(void)
{
	CHECK(region_charge(&mine, 0, REGION_DATA, BYTES, 0) == 0);
	CHECK(region_share_export_descriptors(&mine, 0, &run->key, BYTES) == 0);
	run->exported = 1;
}

static void play_exporter(void *arg)
{
	(void)arg;
	join();
	region_step_hook = count_step;
	export_it();
	CHECK(region_share_withdraw(&mine, run->key.key, BYTES) == 1);
	kill(getpid(), SIGKILL);
}

static void leave_exported(void *arg)
{
	(void)arg;
	join();
	export_it();
	kill(getpid(), SIGKILL);
}

static void play_reaper(void *arg)
{
	(void)arg;
	region_step_hook = count_step;
	join();
	CHECK(region_reap(&mine) >= 0);
	kill(getpid(), SIGKILL);
}

static void play_importer(void *arg)
{
	unsigned device;
	uint64_t bytes;

	(void)arg;
	region_step_hook = count_step;
	join();
	CHECK(region_reap(&mine) >= 0);
	CHECK(region_share_import(&mine, run->key.key, &device, &bytes) == 1);
	region_share_import_end(&mine, run->key.key);
	kill(getpid(), SIGKILL);
}

/* -- the test ---------------------------------------------------------------------------------- */

static void begin(void **state)
{
	struct region_setup setup = setup_of(GIB);
	struct place *place = *state;

	run = shared_memory(sizeof(*run));
	snprintf(path, sizeof(path), "%s", place->path);
	snprintf(driver_path, sizeof(driver_path), "%s.driver", path);
	driver = open(driver_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(driver >= 0);
	assert_int_equal(open_claimed(path, &setup, &keeper), 0);
}

static void end(void)
{
	region_close(&keeper);
	close(driver);
	assert_int_equal(unlink(driver_path), 0);
}

static void new_descriptor(void)
{
	memset(run, 0, sizeof(*run));
	descriptor = open(driver_path, O_RDONLY | O_CLOEXEC);
	assert_true(descriptor >= 0);
	assert_int_equal(region_descriptor_mark(descriptor, &run->key), 0);
}

static void look(void)
{
	assert_true(region_reap(&keeper) >= 0);
	region_share_look(&keeper);
	region_check(&keeper, NULL, NULL); /* takes over what a dead holder left */
	assert_int_equal(count_wrong(&keeper), 0);
}

/* All workers are dead. */
static void assert_kept(uint64_t step)
{
	uint64_t used;

	look();
	used = region_used(&keeper, 0);
	if (used != BYTES && (run->exported || used != 0))
		fail_msg("killed at step %llu: %llu bytes used", (unsigned long long)step,
			 (unsigned long long)used);
	assert_int_equal(used, region_own_usage(&keeper, 0).offset);
	close(descriptor);
	look();
	assert_int_equal(region_used(&keeper, 0), 0);
}

static void walk(void **state, void (*first)(void *), void (*play)(void *))
{
	uint64_t passed = UINT64_MAX;

	begin(state);
	for (uint64_t step = 1; step <= passed; step++) {
		new_descriptor();
		if (first)
			reap_status(spawn(first, NULL));
		run->kill_at = step;
		assert_true(WIFSIGNALED(reap_status(spawn(play, NULL))));
		if (run->count < step)
			passed = run->count; /* it came to its end */
		assert_kept(step);
	}
	assert_true(passed > 3);
	end();
}

UNIT_TEST(test_exporter)
{
	walk(state, NULL, play_exporter);
}

UNIT_TEST(test_reaper)
{
	walk(state, leave_exported, play_reaper);
}

UNIT_TEST(test_importer)
{
	walk(state, leave_exported, play_importer);
}
