/* Many threads and many processes at one limit: it is never passed, and at the end all is zero. */
#include <pthread.h>
#include <sched.h>

#include "region_fixture.h"

#define LIMIT     (20 * MIB) /* less than one thread alone comes to want */
#define PROCESSES 6
#define THREADS   4
#define ROUNDS    8000

struct crowd {
	const char *path;
	struct region_setup setup;
	uint64_t ready, go, held; /* held: what all hold by their own count, never above LIMIT */
	uint64_t refused, highest;
};

struct member {
	struct crowd *crowd;
	struct region *region;
	unsigned seed;
};

static void note_highest(uint64_t *highest, uint64_t value)
{
	uint64_t seen = __atomic_load_n(highest, __ATOMIC_RELAXED);

	while (value > seen && !__atomic_compare_exchange_n(highest, &seen, value, true,
							    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/* Holds up to eight charges at a time, of one to sixteen MiB, in all the classes. */
static void *work(void *arg)
{
	struct member *member = arg;
	struct crowd *crowd = member->crowd;
	uint64_t held[8] = {0};

	for (int round = 0; round < ROUNDS; round++) {
		unsigned which = (unsigned)rand_r(&member->seed) % 8;
		enum region_class class = (enum region_class)(which % 4);
		uint64_t bytes = (1 + (unsigned)rand_r(&member->seed) % 16) * MIB;

		if (held[which]) {
			__atomic_sub_fetch(&crowd->held, held[which], __ATOMIC_SEQ_CST);
			region_refund(member->region, 0, class, held[which]);
			held[which] = 0;
		} else if (which % 2 ? region_charge(member->region, 0, class, bytes, LIMIT) == 0
				     : region_charge_range(member->region, 0, class, MIB, bytes,
							   LIMIT, &bytes) == 0) {
			held[which] = bytes;
			note_highest(&crowd->highest,
				     __atomic_add_fetch(&crowd->held, bytes, __ATOMIC_SEQ_CST));
		} else {
			__atomic_add_fetch(&crowd->refused, 1, __ATOMIC_RELAXED);
			sched_yield();
		}
	}
	for (unsigned which = 0; which < 8; which++) {
		__atomic_sub_fetch(&crowd->held, held[which], __ATOMIC_SEQ_CST);
		region_refund(member->region, 0, (enum region_class)(which % 4), held[which]);
	}
	return NULL;
}

static void work_in_threads(struct crowd *crowd, struct region *region)
{
	struct member members[THREADS];
	pthread_t threads[THREADS];

	for (unsigned i = 0; i < THREADS; i++) {
		members[i] = (struct member){crowd, region, (unsigned)getpid() + i};
		CHECK(pthread_create(&threads[i], NULL, work, &members[i]) == 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(region_own_usage(region, 0).total == 0);
}

static void process(void *arg)
{
	struct crowd *crowd = arg;
	struct region region = REGION_CLOSED;

	CHECK(open_claimed(crowd->path, &crowd->setup, &region) == 0);
	__atomic_add_fetch(&crowd->ready, 1, __ATOMIC_SEQ_CST);
	CHECK(reached(&crowd->go, 1, LONG_MS));
	work_in_threads(crowd, &region);
	region_close(&region);
}

static struct crowd *crowd_make(const char *path)
{
	struct crowd *crowd = shared_memory(sizeof(*crowd));

	crowd->path = path;
	crowd->setup = setup_of(LIMIT);
	return crowd;
}

static void assert_held_to(struct crowd *crowd, struct region *region)
{
	assert_true(crowd->highest <= LIMIT);
	assert_true(crowd->highest > LIMIT * 9 / 10); /* there was a limit to be at */
	assert_true(crowd->refused > 0);
	assert_int_equal(crowd->held, 0);
	assert_int_equal(region_used(region, 0), 0);
	assert_int_equal(count_wrong(region), 0);
}

UNIT_TEST(test_threads)
{
	struct crowd *crowd = crowd_make(here.path);
	struct region region = REGION_CLOSED;

	assert_int_equal(open_claimed(here.path, &crowd->setup, &region), 0);
	work_in_threads(crowd, &region);
	assert_held_to(crowd, &region);
	region_close(&region);
	munmap(crowd, sizeof(*crowd));
}

UNIT_TEST(test_processes)
{
	struct crowd *crowd = crowd_make(here.path);
	struct region region = REGION_CLOSED;
	pid_t pids[PROCESSES];

	assert_int_equal(open_claimed(here.path, &crowd->setup, &region), 0);
	for (int i = 0; i < PROCESSES; i++)
		pids[i] = spawn(process, crowd);
	assert_true(reached(&crowd->ready, PROCESSES, LONG_MS));
	FLAG_SET(crowd->go);
	for (int i = 0; i < PROCESSES; i++)
		assert_int_equal(reap_status(pids[i]), 0);
	assert_held_to(crowd, &region);
	assert_int_equal(region_living(&region), 1);
	assert_int_equal(region.file->own.takeovers, 0);
	region_close(&region);
	munmap(crowd, sizeof(*crowd));
}

/* -- onlookers, several threads of them, between the claims and deaths of others --------------- */

struct onlookers {
	struct region *region;
	uint64_t stop, wrong;
};

static void *look_on(void *arg)
{
	struct onlookers *onlookers = arg;

	while (!FLAG_READ(onlookers->stop)) {
		if (region_reap(onlookers->region) < 0)
			FLAG_SET(onlookers->wrong);
		/* A dead process that is not reaped yet is no fault here: only the sums count. */
		region_check(onlookers->region, NULL, NULL);
	}
	return NULL;
}

UNIT_TEST(test_onlookers)
{
	struct region_setup setup = setup_of(LIMIT);
	struct region region = REGION_CLOSED, view = REGION_CLOSED, mortal = REGION_CLOSED;
	struct onlookers onlookers = {&view, 0, 0};
	pthread_t threads[THREADS];
	struct fault fault;

	assert_int_equal(open_claimed(here.path, &setup, &region), 0);
	assert_int_equal(region_view(here.path, &view, &fault), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, look_on, &onlookers), 0);
	for (int i = 0; i < 300; i++) {
		assert_int_equal(open_claimed(here.path, NULL, &mortal), 0);
		assert_int_equal(region_charge(&mortal, 0, REGION_DATA, LIMIT - 5, LIMIT), 0);
		assert_int_equal(region_charge(&region, 0, REGION_DATA, 5, LIMIT), 0);
		region_forget(&mortal);
		region_refund(&region, 0, REGION_DATA, 5);
	}
	FLAG_SET(onlookers.stop);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(onlookers.wrong, 0);
	region_reap(&region);
	assert_int_equal(region_used(&region, 0), 0);
	assert_int_equal(region.file->own.takeovers, 0); /* nobody took the living for dead */
	assert_int_equal(count_wrong(&region), 0);
	region_close(&view);
	region_close(&region);
}
