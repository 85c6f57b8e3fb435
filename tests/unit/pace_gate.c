/* The gate: what the words of the region let through, what it shows the monitor, how it waits. */
#include <pthread.h>
#include <time.h>

#include "pace.h"
#include "region_fixture.h"

#define LAUNCHES 1000
#define PATIENT  (10 * NS_PER_S)

static struct region region;
static struct vgpu_hami_region *hami;

#define POKE(word, value) __atomic_store_n(&(word), value, __ATOMIC_SEQ_CST)
#define PEEK(word)        __atomic_load_n(&(word), __ATOMIC_SEQ_CST)

static int32_t *own_status(void)
{
	return &hami->slots[region.slot].status;
}

/* No device has a compute quota. */
static void attach(struct region *to)
{
	struct pace_quota quotas[VGPU_DEVICES_MAX];

	for (unsigned i = 0; i < VGPU_DEVICES_MAX; i++)
		quotas[i] = (struct pace_quota){.index = -1};
	pace_attach(to, quotas, PACE_RULE_SWITCH, NULL);
}

static int begin(void **state)
{
	if (place_make(state))
		return -1;
	region = (struct region)REGION_CLOSED;
	claim(&region);
	hami = &region.file->hami;
	pace_forked();
	attach(&region);
	return 0;
}

static int end(void **state)
{
	pace_forked();
	region_close(&region);
	return place_remove(state);
}

#undef UNIT_SET_UP
#undef UNIT_TEAR_DOWN
#define UNIT_SET_UP    begin
#define UNIT_TEAR_DOWN end

static void tick(void)
{
	sys_sleep_ns(20 * NS_PER_MS);
}

/* What a hook does. */
static int launch(void)
{
	return pace_is_open() ? 0 : pace_check_monitor();
}

UNIT_TEST(test_nobodys)
{
	pace_forked();
	for (int i = 0; i < LAUNCHES; i++) {
		assert_false(pace_is_open());
		assert_int_equal(pace_check_monitor(), 0);
	}
	assert_int_equal(pace_wait_monitor(), 0);
}

static unsigned let_through(void)
{
	unsigned count = 0;

	for (int i = 0; i < LAUNCHES; i++)
		if (pace_is_open())
			count++;
		else
			assert_int_equal(pace_check_monitor(), 0);
	return count;
}

UNIT_TEST(test_of_no_slice)
{
	pace_forked();
	pace_open();
	assert_true(let_through() > LAUNCHES / 2);
}

UNIT_TEST(test_open)
{
	assert_true(let_through() > LAUNCHES / 2);
	assert_int_equal(PEEK(hami->recent_kernel), 2);
}

/* However the launches come, one in 64 looks at the clock. */
UNIT_TEST(test_looks)
{
	unsigned unseen = 0;

	for (int i = 0; i < LAUNCHES; i++) {
		unseen = pace_is_open() ? unseen + 1 : 0;
		assert_true(unseen < 64);
		if (!unseen)
			assert_int_equal(pace_check_monitor(), 0);
	}
}

UNIT_TEST(test_counted_down)
{
	static const int32_t counts[] = {1, 0, 3, INT32_MAX};

	assert_int_equal(launch(), 0);
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		POKE(hami->recent_kernel, counts[i]);
		assert_false(pace_is_open());
		assert_int_equal(pace_check_monitor(), 0);
		assert_int_equal(PEEK(hami->recent_kernel), 2);
	}
}

UNIT_TEST(test_blocked)
{
	static const int32_t blocks[] = {-1, -2, INT32_MIN};

	for (size_t i = 0; i < sizeof(blocks) / sizeof(*blocks); i++) {
		assert_int_equal(launch(), 0);
		POKE(hami->recent_kernel, blocks[i]);
		assert_false(pace_is_open());
		assert_int_equal(pace_check_monitor(), -EAGAIN);
		assert_int_equal(PEEK(hami->recent_kernel), blocks[i]);
		POKE(hami->recent_kernel, 0);
		assert_int_equal(launch(), 0);
		assert_int_equal(PEEK(hami->recent_kernel), 2);
	}
}

/* Nothing of it is work, to the monitor. */
UNIT_TEST(test_suspended)
{
	int64_t now;

	assert_int_equal(launch(), 0);
	POKE(*own_status(), VGPU_SLOT_SUSPENDED);
	POKE(hami->recent_kernel, 1);
	POKE(hami->last_kernel_time, 5);
	for (int i = 0; i < 20; i++) {
		assert_false(pace_is_open());
		assert_int_equal(pace_check_monitor(), -EAGAIN);
		tick();
	}
	assert_int_equal(PEEK(hami->recent_kernel), 1);
	assert_int_equal(PEEK(hami->last_kernel_time), 5);
	POKE(*own_status(), VGPU_SLOT_RUNNING);
	now = (int64_t)time(NULL);
	assert_int_equal(launch(), 0);
	assert_int_equal(PEEK(hami->recent_kernel), 2);
	assert_true(PEEK(hami->last_kernel_time) >= now - 2);
}

/* Other slots' status is not ours. */
UNIT_TEST(test_others_suspended)
{
	assert_int_equal(launch(), 0);
	POKE(hami->slots[region.slot + 1].status, VGPU_SLOT_SUSPENDED);
	assert_true(let_through() > LAUNCHES / 2);
	POKE(hami->slots[region.slot + 1].status, VGPU_SLOT_FREE);
}

/* -- the time -- */

static int64_t launched_s; /* the last time */

static void shows_time(void)
{
	int64_t shown = PEEK(hami->last_kernel_time);

	assert_in_range(shown, launched_s - 1, time(NULL));
}

static void launch_for(uint64_t ns, uint64_t pause_ns)
{
	for (uint64_t end = clock_now_ns() + ns; clock_now_ns() < end;) {
		launched_s = (int64_t)time(NULL);
		assert_int_equal(launch(), 0);
		if (pause_ns)
			sys_sleep_ns(pause_ns);
	}
}

/* Launches follow each other at once, after some milliseconds, or rarely. */
UNIT_TEST(test_time)
{
	static const uint64_t pauses[] = {0, 2 * NS_PER_MS, 300 * NS_PER_MS};

	for (size_t i = 0; i < sizeof(pauses) / sizeof(*pauses); i++) {
		pace_waited(); /* the pace changes */
		POKE(hami->last_kernel_time, 0);
		launch_for(NS_PER_S * 7 / 10, pauses[i]);
		shows_time();
	}
}

/* The first launch after a wait for work is shown. */
UNIT_TEST(test_time_after_waiting)
{
	launch_for(NS_PER_S / 10, 0); /* so that looks are rare */
	POKE(hami->last_kernel_time, 0);
	sys_sleep_ns(NS_PER_S / 2);
	pace_waited();
	launched_s = (int64_t)time(NULL);
	assert_int_equal(launch(), 0);
	shows_time();
}

/* -- waiting -- */

struct waiter {
	pthread_t thread;
	int error;
	uint64_t done, cpu_ns;
};

static void *wait_there(void *arg)
{
	struct waiter *waiter = arg;
	struct timespec used;

	errno = EXDEV;
	waiter->error = pace_wait_monitor();
	if (errno != EXDEV)
		waiter->error = -EPROTO;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	waiter->cpu_ns = (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
	FLAG_SET(waiter->done);
	return NULL;
}

static void begin_wait(struct waiter *waiter)
{
	*waiter = (struct waiter){.done = 0};
	assert_int_equal(pthread_create(&waiter->thread, NULL, wait_there, waiter), 0);
}

static void still_waits(struct waiter *waiter)
{
	sys_sleep_ns(NS_PER_S / 4);
	assert_false(FLAG_READ(waiter->done));
}

static void ends(struct waiter *waiter, int error)
{
	assert_true(reached(&waiter->done, 1, LONG_MS));
	assert_int_equal(pthread_join(waiter->thread, NULL), 0);
	assert_int_equal(waiter->error, error);
	assert_true(waiter->cpu_ns < NS_PER_S / 20);
}

UNIT_TEST(test_waits)
{
	struct waiter a, b;

	POKE(*own_status(), VGPU_SLOT_SUSPENDED);
	begin_wait(&a);
	begin_wait(&b);
	still_waits(&a);
	POKE(hami->recent_kernel, -1);
	POKE(*own_status(), VGPU_SLOT_RUNNING); /* one reason for another */
	still_waits(&a);
	still_waits(&b);
	POKE(hami->recent_kernel, 0);
	ends(&a, 0);
	ends(&b, 0);
	assert_int_equal(PEEK(hami->recent_kernel), 2);
	assert_int_equal(pace_wait_monitor(), 0);
}

/* Nobody would ever change the words of a region that is lost. */
static void deleted(const char *path)
{
	assert_int_equal(unlink(path), 0);
}

static void truncated(const char *path)
{
	assert_int_equal(truncate(path, 0), 0);
}

static void written_over(const char *path)
{
	static char bytes[sizeof(struct vgpu_region_file)];
	int fd = open(path, O_WRONLY);

	memset(bytes, 0xff, sizeof(bytes)); /* blocked, as it were */
	assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
	close(fd);
}

static const struct {
	const char *name;
	void (*way)(const char *path);
	int error;
} losses[] = {{"deleted", deleted, -ESTALE},
	      {"truncated", truncated, -EUCLEAN},
	      {"written over", written_over, -EUCLEAN}};

UNIT_ROWS(losses)
{
	struct waiter waiter;

	POKE(hami->recent_kernel, -1);
	begin_wait(&waiter);
	still_waits(&waiter);
	row->way(here.path);
	ends(&waiter, row->error);
	for (int n = 0; n < LAUNCHES; n++)
		assert_int_equal(launch(), row->error);
	assert_int_equal(pace_wait_monitor(), row->error);
}

/* One that launches fast, and never waits, is told as well. */
UNIT_TEST(test_lost_while_open)
{
	uint64_t end = clock_now_ns() + PATIENT;

	launch_for(NS_PER_S / 10, 0);
	deleted(here.path);
	while (launch() == 0)
		assert_true(clock_now_ns() < end);
	assert_int_equal(launch(), -ESTALE);
}

/* -- who has no slot -- */

UNIT_TEST(test_onlooker)
{
	struct region view = REGION_CLOSED;
	struct fault fault;

	pace_forked();
	assert_int_equal(region_view(here.path, &view, &fault), 0);
	attach(&view);
	POKE(hami->recent_kernel, -1);
	assert_true(let_through() > LAUNCHES / 2);
	assert_int_equal(PEEK(hami->recent_kernel), -1);
	region_close(&view);
}

static void in_child(void *arg)
{
	(void)arg;
	pace_forked();
	region_forget(&region);
	for (int i = 0; i < LAUNCHES; i++)
		CHECK(!pace_is_open() && pace_check_monitor() == 0);
	CHECK(pace_wait_monitor() == 0);
}

UNIT_TEST(test_forked)
{
	assert_int_equal(launch(), 0);
	POKE(hami->recent_kernel, -1);
	assert_int_equal(reap_status(spawn(in_child, NULL)), 0);
	assert_int_equal(launch(), -EAGAIN);
	assert_int_equal(PEEK(hami->recent_kernel), -1);
}
