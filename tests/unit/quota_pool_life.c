/* Pools and what goes on around them: a region that is locked or lost, forks, threads. */
#include "quota_held_lock.h"
#include "quota_pool_fixture.h"

/* -- resets of a managed pool's figure --------------------------------------------------------- */

static void open_managed(void)
{
	attach(8 * GIB);
	assert_int_equal(quota_pool_open(POOL, 0, POOL_MANAGED), 0);
}

static struct pool_reservation begin_allocation(void)
{
	struct pool_reservation reservation;

	assert_int_equal(grow(POOL, MANAGED_CHUNK, 0, &reservation), 0);
	return reservation;
}

/* The allocation makes the pool grow, which shrinks before anybody looks. */
static void allocate_unseen(void)
{
	struct pool_reservation reservation;

	if (quota_pool_reserve(POOL, MANAGED_CHUNK, &reservation) == -EAGAIN)
		reservation = begin_allocation();
	quota_pool_settle(POOL, &reservation, NULL);
}

static void see(uint64_t reserved_bytes)
{
	struct pool_figure figure = figure_of(POOL, reserved_bytes);

	quota_pool_reset_seen(POOL, &figure);
}

UNIT_TEST(test_reset)
{
	struct pool_reservation reservation;

	open_managed();
	allocate_unseen();
	assert_true(quota_pool_reset_begin(POOL));
	assert_true(quota_pool_is_idle(POOL));
	assert_int_equal(quota_pool_reserve(POOL, 1, &reservation), -EBUSY);
	assert_int_equal(grow(POOL, 1, 0, &reservation), -EBUSY);
	see(CHUNK);
	quota_pool_reset_end(POOL);
	correct(POOL, 0);
	assert_rests_at(CHUNK);
	assert_int_equal(quota_pool_open(OTHER, 0, 0), 0);
	assert_false(quota_pool_reset_begin(OTHER)); /* not managed */
	assert_false(quota_pool_reset_begin(POOL + 1));
}

/* The allocation begins before the reset, and ends after it. */
UNIT_TEST(test_reset_under_way)
{
	struct pool_reservation reservation;

	open_managed();
	reservation = begin_allocation();
	assert_true(quota_pool_reset_begin(POOL));
	assert_false(quota_pool_is_idle(POOL));
	see(0);
	quota_pool_reset_end(POOL);
	quota_pool_settle(POOL, &reservation, NULL);
	correct(POOL, 0);
	assert_rests_at(MANAGED_CHUNK);
}

/* Another thread looks after the driver has reset the figure. */
UNIT_TEST(test_reset_looked_at)
{
	open_managed();
	assert_true(quota_pool_reset_begin(POOL));
	see(0);
	quota_pool_reset_pass(POOL);
	allocate_unseen();
	correct(POOL, 0);
	quota_pool_reset_end(POOL);
	correct(POOL, 0);
	assert_rests_at(MANAGED_CHUNK);
}

/* Other threads look while the figure is read that counts. */
UNIT_TEST(test_reset_beside_looks)
{
	struct pool_figure figure;

	open_managed();
	allocate_unseen();
	assert_true(quota_pool_reset_begin(POOL));
	figure = figure_of(POOL, CHUNK);
	correct(POOL, 0);
	quota_pool_reset_seen(POOL, &figure);
	quota_pool_reset_end(POOL);
	correct(POOL, 0);
	assert_rests_at(CHUNK);
}

/* -- the region ------------------------------------------------------------------------------- */

static void *grow_in_thread(void *arg)
{
	struct pool_reservation reservation;

	(void)arg;
	return (void *)(intptr_t)grow(POOL, 1, 2 * CHUNK, &reservation);
}

static int knows_something(void)
{
	unsigned flags;
	int device;

	return quota_pool_is_known(POOL, &device, &flags) || pool_managed_charge(0) ||
	       pool_spare_charge(0) || !is_quiet();
}

/* What waits for the region's lock in vain is refused, and what goes back meanwhile goes back
 * later. */
UNIT_TEST(test_lock_held)
{
	pthread_t thread;
	void *result = NULL;

	open_pool(NARROW);
	allocate_from(POOL, 2 * CHUNK, 2 * CHUNK);
	lock_elsewhere();
	assert_int_equal(pthread_create(&thread, NULL, grow_in_thread, NULL), 0);
	await_waiter();
	assert_in_child(knows_something); /* a thread has the lock of pool.c */
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_int_equal((intptr_t)result, -ETIMEDOUT);
	unlock_elsewhere();
	assert_rests_at(2 * CHUNK);
	correct(POOL, 0);
	assert_int_equal(data(), 0);
}

/* What could not be charged is not thought to be: else its end would be taken off others'. */
UNIT_TEST(test_lock_held_while_raised)
{
	open_pool(NARROW);
	allocate(BASE, 10 * MIB);
	lock_elsewhere();
	correct(POOL, 2 * CHUNK);
	unlock_elsewhere();
	assert_int_equal(data(), 10 * MIB);
	assert_int_equal(pool_spare_charge(0), 0);
	assert_true(correct(POOL, 2 * CHUNK)); /* made up for */
	assert_int_equal(data(), 10 * MIB + 2 * CHUNK);
	correct(POOL, 0);
	assert_int_equal(data(), 10 * MIB);
}

UNIT_TEST(test_lost)
{
	struct pool_reservation reservation;

	open_pool(GIB);
	assert_int_equal(grow(POOL, 1, 0, &reservation), 0);
	delete_region();
	quota_pool_settle(POOL, &reservation, NULL);
	assert_int_equal(grow(POOL, 8 * CHUNK, 0, &reservation), -ESTALE);
	assert_why_lost();
	assert_true(is_quiet());
	correct(POOL, 20 * CHUNK);
	correct(POOL, 0);
	close_pool(POOL, false);
}

static int live_as_child(void)
{
	struct quota_gpu gpu = {"GPU-a", 0};
	struct pool_reservation reservation;
	uint64_t found;

	if (quota_attach(&quota_slice, &gpu, 1, NULL) != 0 || data() != 0)
		return 1;
	if (quota_pools(-1, &found, 1) != 0 || pool_managed_charge(0) != 0)
		return 2;
	if (quota_pool_open(POOL, 0, 0) != 0 || grow(POOL, 1, 0, &reservation) != 0)
		return 3;
	return data() == CHUNK && quota_used(0) == MANAGED_CHUNK + 3 * CHUNK ? 0 : 4;
}

/* The child attaches for itself, and nothing of the parent's moves. */
UNIT_TEST(test_forked)
{
	open_pool(NARROW);
	assert_int_equal(quota_pool_open(OTHER, 0, POOL_MANAGED), 0);
	allocate_from(POOL, 2 * CHUNK, 2 * CHUNK);
	allocate_from(OTHER, 1, MANAGED_CHUNK);
	close_pool(OTHER, false);
	assert_in_child(live_as_child);
	assert_int_equal(data(), MANAGED_CHUNK + 2 * CHUNK);
	assert_true(correct(POOL, 0));
	assert_int_equal(data(), MANAGED_CHUNK);
}

/* -- threads ---------------------------------------------------------------------------------- */

#define LIMIT (40 * CHUNK)

/* A driver's pool. An allocation makes it grow by its size in chunks, or not at all. */
static struct {
	pthread_mutex_t mutex;
	uint64_t reserved_bytes, used_bytes;
	bool short_of;
} driver = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct pool_figure driver_look(bool trim)
{
	struct pool_figure figure = figure_of(POOL, 0);

	pthread_mutex_lock(&driver.mutex);
	if (trim)
		driver.reserved_bytes = driver.used_bytes;
	figure.reserved_bytes = driver.reserved_bytes;
	pthread_mutex_unlock(&driver.mutex);
	return figure;
}

static void driver_take(uint64_t bytes, bool grows)
{
	pthread_mutex_lock(&driver.mutex);
	driver.used_bytes += bytes;
	if (grows)
		driver.reserved_bytes += bytes;
	if (driver.reserved_bytes < driver.used_bytes)
		driver.reserved_bytes = driver.used_bytes;
	driver.short_of |= own_usage(0).data < driver.reserved_bytes;
	pthread_mutex_unlock(&driver.mutex);
}

static void driver_give(uint64_t bytes)
{
	pthread_mutex_lock(&driver.mutex);
	driver.used_bytes -= bytes;
	pthread_mutex_unlock(&driver.mutex);
}

static int claim_some(uint64_t bytes, struct pool_reservation *ret_reservation)
{
	int error = quota_pool_reserve(POOL, bytes, ret_reservation);
	struct pool_figure figure;

	if (error != -EAGAIN)
		return error;
	figure = driver_look(false);
	return quota_pool_grow(POOL, bytes, &figure, ret_reservation);
}

static void *work(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg + 1;
	uint64_t held = 0;

	for (unsigned step = 0; step < 20000; step++) {
		uint64_t bytes = (1 + (uint64_t)rand_r(&seed) % 3) * CHUNK;
		bool looks = rand_r(&seed) % 4 == 0;
		struct pool_figure figure;
		struct pool_reservation reservation;

		if (quota_used(0) > LIMIT)
			return (void *)1;
		if (held > 4 * CHUNK || (held && rand_r(&seed) % 2)) {
			driver_give(held);
			held = 0;
			figure = driver_look(rand_r(&seed) % 2);
			quota_pool_correct(POOL, &figure);
		} else if (claim_some(bytes, &reservation) == 0) {
			driver_take(bytes, rand_r(&seed) % 2);
			held += bytes;
			figure = driver_look(false);
			quota_pool_settle(POOL, &reservation, looks ? &figure : NULL);
		}
	}
	driver_give(held);
	return NULL;
}

/* Always enough is charged, and never more than the limit. */
UNIT_TEST(test_threads)
{
	struct pool_figure figure;

	open_pool(LIMIT);
	assert_in_threads(work);
	assert_false(driver.short_of);
	figure = driver_look(true);
	quota_pool_correct(POOL, &figure);
	assert_rests_at(0);
	assert_int_equal(quota_used(0), 0);
}
