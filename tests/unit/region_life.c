/* The dying: dead processes that the kernel is not through with. */
#include <pthread.h>
#include <sys/syscall.h>

#include "region_fixture.h"
#include "region_internal.h"

#define LIMIT (100 * MIB)

struct dying {
	const char *path;
	uint64_t gone, over;
};

static struct dying *dying; /* in shared memory */
static struct region of_child = REGION_CLOSED;

/* The last thread, which stands for a driver at work on the files of the dead. */
static void *linger(void *arg)
{
	(void)arg;
	region_forget(&of_child);
	FLAG_SET(dying->gone);
	while (!FLAG_READ(dying->over))
		usleep(1000);
	syscall(SYS_exit_group, 0); /* at once, whatever a sanitizer does at an _exit */
	return NULL;
}

/* A process whose first thread has exited and that has a second one yet looks, in /proc, as one
 * that was killed and whose files are still being released. */
static void start_dying(void *arg)
{
	struct region_setup setup = setup_of(LIMIT);
	pthread_t thread;

	(void)arg;
	CHECK(open_claimed(dying->path, &setup, &of_child) == 0);
	CHECK(region_charge(&of_child, 0, REGION_DATA, 60 * MIB, LIMIT) == 0);
	CHECK(pthread_create(&thread, NULL, linger, NULL) == 0);
	syscall(SYS_exit, 0);
}

static pid_t start(struct region *region)
{
	struct region_setup setup = setup_of(LIMIT);
	pid_t pid;

	dying = dying ? dying : shared_memory(sizeof(*dying));
	memset(dying, 0, sizeof(*dying));
	dying->path = here.path;
	*region = (struct region)REGION_CLOSED;
	if (region)
		assert_int_equal(open_claimed(here.path, &setup, region), 0);
	pid = spawn(start_dying, NULL);
	assert_true(reached(&dying->gone, 1, LONG_MS));
	while (region_slot_end(region, 1) != REGION_END_SEEN)
		usleep(100); /* its first thread is on its way out */
	return pid;
}

/* It does nothing more, and nothing of it is anybody else's yet. */
UNIT_TEST(test_counts)
{
	struct region region, next = REGION_CLOSED;
	pid_t pid = start(&region);

	assert_false(region_slot_alive(&region, 1));
	assert_int_equal(region_living(&region), 1);
	assert_int_equal(region_reap(&region), 0);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 41 * MIB, LIMIT), -EDQUOT);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 40 * MIB, LIMIT), 0);
	assert_int_equal(region_used(&region, 0), LIMIT);
	assert_int_equal(count_wrong(&region), 0);
	assert_int_equal(open_claimed(dying->path, NULL, &next), 0);
	assert_int_equal(next.slot, 2);
	region_close(&next);
	FLAG_SET(dying->over);
	assert_int_equal(reap_status(pid), 0);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 60 * MIB, LIMIT), 0);
	region_close(&region);
}

static void *end_soon(void *arg)
{
	(void)arg;
	usleep(100000);
	FLAG_SET(dying->over);
	return NULL;
}

UNIT_TEST(test_is_waited_for)
{
	struct region region;
	pid_t pid = start(&region);
	uint64_t start_ns = clock_now_ns();
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, end_soon, NULL), 0);
	assert_true(region_wait_dying(&region, 0)); /* a zombie, as nobody has waited for it */
	assert_in_range(clock_now_ns() - start_ns, 90 * NS_PER_MS, REGION_DYING_PATIENCE_NS);
	assert_int_equal(region_used(&region, 0), 0);
	assert_false(region_wait_dying(&region, 0));
	pthread_join(thread, NULL);
	assert_int_equal(reap_status(pid), 0);
	region_close(&region);
}

UNIT_TEST(test_not_for_ever)
{
	struct region region;
	pid_t pid = start(&region);
	uint64_t start_ns = clock_now_ns();

	assert_false(region_wait_dying(&region, 1)); /* it holds nothing of that one */
	assert_true(region_wait_dying(&region, 0));
	assert_true(clock_now_ns() - start_ns >= REGION_DYING_PATIENCE_NS);
	assert_int_equal(region_used(&region, 0), 60 * MIB);
	kill_child(pid);
	region_close(&region);
}

/* A program that is killed and started again at once finds what its predecessor still has. */
UNIT_TEST(test_outlives_a_reset)
{
	struct region_setup more = setup_of(2 * LIMIT);
	struct region region, next = REGION_CLOSED;
	pid_t pid = start(&region);

	region_close(&region);
	assert_int_equal(open_claimed(dying->path, &more, &next), 0); /* it waits, and goes on */
	assert_int_equal(region_used(&next, 0), 60 * MIB);
	region_close(&next);
	FLAG_SET(dying->over);
	assert_int_equal(reap_status(pid), 0);
	assert_int_equal(open_claimed(dying->path, &more, &next), 0);
	assert_int_equal(region_used(&next, 0), 0);
	assert_int_equal(next.file->hami.limit[0], 2 * LIMIT);
	region_close(&next);
}

/* -- those that only seem so ------------------------------------------------------------------ */

static void leave_charge(struct region *region)
{
	struct region_setup setup = setup_of(LIMIT);
	struct region other = REGION_CLOSED;

	*region = (struct region)REGION_CLOSED;
	assert_int_equal(open_claimed(here.path, &setup, region), 0);
	assert_int_equal(open_claimed(here.path, &setup, &other), 0);
	assert_int_equal(region_charge(&other, 0, REGION_DATA, MIB, LIMIT), 0);
	region_forget(&other);
}

/* A pid that somebody living has. */
UNIT_TEST(test_reused_pid)
{
	struct region region;

	leave_charge(&region);
	assert_int_equal(region_slot_end(&region, 1), REGION_END_OVER);
	region.file->hami.slots[1].pid = 1;
	assert_int_equal(region_slot_end(&region, 1), REGION_END_OVER);
	region.file->hami.slots[1].pid = 0x3fffffff; /* beyond any */
	assert_int_equal(region_slot_end(&region, 1), REGION_END_OVER);
	region_close(&region);
}

/* Of another namespace, or of a version of vgpu that did not say: for a while after it was first
 * seen dead. */
UNIT_TEST(test_unknown)
{
	static const uint64_t namespaces[] = {0, 1};

	for (int i = 0; i < 2; i++) {
		struct region region;
		uint64_t seen_ns;

		unlink(here.path);
		leave_charge(&region);
		region.file->own.slots[1].pid_namespace = namespaces[i];
		seen_ns = clock_now_ns();
		assert_int_equal(region_slot_end(&region, 1), REGION_END_UNKNOWN);
		if (region_reap(&region) == 0)
			assert_true(region_wait_dying(&region, 0));
		assert_true(clock_now_ns() - seen_ns > NS_PER_S / 5);
		assert_int_equal(region_used(&region, 0), 0);
		region_close(&region);
	}
}

/* But one that held nothing is over in any case. */
UNIT_TEST(test_nothing_held)
{
	struct region region;

	leave_charge(&region);
	memset(region.file->hami.slots[1].used, 0, sizeof(region.file->hami.slots[1].used));
	region.file->own.device[0].used = 0;
	region.file->own.slots[1].pid_namespace = 1;
	assert_int_equal(region_slot_end(&region, 1), REGION_END_OVER);
	assert_int_equal(region_reap(&region), 1);
	region_close(&region);
}

static void become_another(void *arg)
{
	struct region_setup setup = setup_of(LIMIT);

	CHECK(open_claimed(arg, &setup, &of_child) == 0);
	CHECK(region_charge(&of_child, 0, REGION_DATA, 60 * MIB, LIMIT) == 0);
	execlp("sleep", "sleep", "30", (char *)NULL);
	_exit(127);
}

/* A process that goes on as another program has given back what it had. */
UNIT_TEST(test_exec)
{
	struct region_setup setup = setup_of(LIMIT);
	struct region region = REGION_CLOSED;
	pid_t pid;

	assert_int_equal(open_claimed(here.path, &setup, &region), 0);
	pid = spawn(become_another, here.path);
	for (int i = 0; i < 50000 && (region.file->hami.slots[1].used[0].total == 0 ||
				      region_slot_alive(&region, 1));
	     i++)
		usleep(100);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, LIMIT, LIMIT), 0);
	kill_child(pid);
	region_close(&region);
}
