/* The account: reserve, settle, cancel, free, against a real region. */
#include <pthread.h>
#include <sys/syscall.h>

#include "quota_fixture.h"
#include "sys.h"

UNIT_TEST(test_attach)
{
	static struct slice elsewhere;
	struct quota_gpu gpu = {"GPU-a", 0};
	struct fault fault = {""};

	assert_false(quota_attached());
	attach(GIB);
	assert_true(quota_has_device(0));
	assert_true(quota_has_device(1));
	assert_false(quota_has_device(2));
	assert_false(quota_has_device(-1));
	assert_false(quota_has_device(VGPU_DEVICES_MAX));
	assert_int_equal(quota_limit(0), GIB);
	assert_int_equal(quota_used(0), 0);
	quota_forget();
	assert_false(quota_attached());
	assert_false(quota_has_device(0));
	elsewhere = quota_slice;
	strcpy(elsewhere.region_path, "/nowhere/at/all");
	assert_true(quota_attach(&elsewhere, &gpu, 1, &fault) < 0);
	assert_false(quota_attached());
	assert_true(strlen(fault.text) > 0);
}

/* What a living process holds is kept to, whoever asks for more. */
UNIT_TEST(test_attach_keeps_the_stricter)
{
	struct region_setup setup = {.device_count = 1,
				     .device = {{.uuid = "GPU-a", .memory_bytes = 64 * MIB}}};
	struct region other = REGION_CLOSED;

	assert_int_equal(region_open(quota_slice.region_path, &setup, &other, NULL), 0);
	assert_int_equal(region_claim(&other, NULL), 0);
	attach(GIB);
	assert_int_equal(quota_limit(0), 64 * MIB);
	assert_int_equal(quota_limit(1), GIB); /* appended */
	quota_forget();
	attach(16 * MIB);
	assert_int_equal(quota_limit(0), 16 * MIB);
	region_close(&other);
}

UNIT_TEST(test_exact)
{
	struct quota_reservation reservation;

	attach(10 * MIB);
	allocate(BASE, 2 * MIB + 1);
	assert_int_equal(data(), 4 * MIB);
	allocate(BASE + 32 * MIB, 6 * MIB);
	assert_int_equal(data(), 10 * MIB);
	assert_int_equal(quota_used(0), 10 * MIB);
	assert_int_equal(quota_reserve(0, false, 2 * MIB, &reservation), -EDQUOT);
	assert_int_equal(quota_reserve(0, true, 1, &reservation), -EDQUOT);
	assert_int_equal(data(), 10 * MIB);
	release(BASE);
	assert_int_equal(data(), 6 * MIB);
	assert_int_equal(quota_reserve(0, false, 4 * MIB + 1, &reservation), -EDQUOT);
	allocate(BASE, 4 * MIB);
	release(BASE);
	release(BASE + 32 * MIB);
	assert_int_equal(data(), 0);
	assert_int_equal(own_usage(1).total, 0);
}

UNIT_TEST(test_cancel)
{
	struct quota_reservation reservation;

	attach(10 * MIB);
	for (unsigned round = 0; round < 20; round++) {
		assert_int_equal(quota_reserve(0, false, 9 * MIB, &reservation), 0);
		assert_int_equal(data(), 10 * MIB);
		quota_cancel(&reservation);
		assert_int_equal(data(), 0);
	}
	assert_int_equal((uint32_t)account_stamp(), 0);
	assert_true(account_stamp() != UINT64_MAX); /* none is open */
}

UNIT_TEST(test_overflowing)
{
	static const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 2 * MIB + 2,
					 (uint64_t)1 << 63};
	struct quota_reservation reservation;

	attach(GIB);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		assert_int_equal(quota_reserve(0, false, sizes[i], &reservation), -EDQUOT);
		assert_int_equal(quota_reserve(0, true, sizes[i], &reservation), -EDQUOT);
		assert_int_equal(quota_used(0), 0);
	}
	assert_true(account_stamp() != UINT64_MAX);
}

/* The same where there is no limit to stop them. */
UNIT_TEST(test_overflowing_without_limit)
{
	struct quota_reservation a, b;

	quota_slice.env.cores_pct[0] = 50; /* a slice all the same */
	attach(0);
	assert_int_equal(quota_reserve(0, false, UINT64_MAX, &a), -EDQUOT);
	assert_int_equal(quota_reserve(0, false, (uint64_t)1 << 60, &a), 0);
	assert_int_equal(quota_reserve(0, false, (uint64_t)1 << 63, &b), -EDQUOT);
	assert_int_equal(quota_reserve(0, true, (uint64_t)1 << 63, &b), -EDQUOT);
	quota_cancel(&a);
	assert_int_equal(quota_used(0), 0);
}

/* -- the spare granule ------------------------------------------------------------------------ */

UNIT_TEST(test_spare)
{
	attach(GIB);
	allocate(BASE, KIB);
	assert_int_equal(data(), 2 * MIB);
	allocate(BASE + 4 * KIB, KIB); /* fits: what was charged for it is kept for the next */
	assert_int_equal(data(), 4 * MIB);
	assert_int_equal(account_spare_charge(0), 2 * MIB);
	for (unsigned i = 2; i < 100; i++) {
		allocate(BASE + i * 4 * KIB, KIB);
		assert_int_equal(data(), 4 * MIB);
	}
	allocate(BASE + 2 * MIB, KIB); /* it needs one */
	assert_int_equal(data(), 4 * MIB);
	assert_int_equal(account_spare_charge(0), 0);
	allocate(BASE + 2 * MIB + 4 * KIB, KIB);
	assert_int_equal(data(), 6 * MIB);
	release(BASE + 2 * MIB);
	assert_int_equal(data(), 6 * MIB);
	release(BASE + 2 * MIB + 4 * KIB); /* its granule goes, and the spare with it */
	assert_int_equal(data(), 2 * MIB);
	for (unsigned i = 0; i < 100; i++)
		release(BASE + i * 4 * KIB);
	assert_int_equal(data(), 0);
}

/* Two that fit at once leave one spare, not two. */
UNIT_TEST(test_one_spare)
{
	struct quota_reservation a, b;
	struct block one = block_at(BASE + 4 * KIB, KIB, false);
	struct block two = block_at(BASE + 8 * KIB, KIB, false);

	attach(GIB);
	allocate(BASE, KIB);
	assert_int_equal(quota_reserve(0, false, KIB, &a), 0);
	assert_int_equal(quota_reserve(0, false, KIB, &b), 0);
	assert_int_equal(data(), 6 * MIB);
	assert_int_equal(quota_settle(&a, &one), 0);
	assert_int_equal(quota_settle(&b, &two), 0);
	assert_int_equal(data(), 4 * MIB);
	account_begin();
	account_return_spare(0);
	account_return_spare(0);
	account_end();
	assert_int_equal(data(), 2 * MIB);
}

/* A spare that was taken for a reservation goes back with it. */
UNIT_TEST(test_spare_cancelled)
{
	struct quota_reservation reservation;

	attach(GIB);
	allocate(BASE, KIB);
	allocate(BASE + 4 * KIB, KIB);
	assert_int_equal(quota_reserve(0, false, KIB, &reservation), 0);
	assert_int_equal(data(), 4 * MIB);
	quota_cancel(&reservation);
	assert_true(data() - account_spare_charge(0) == 2 * MIB);
}

/* -- at the limit ----------------------------------------------------------------------------- */

UNIT_TEST(test_tentative)
{
	struct block fits = block_at(BASE + MIB, KIB, false);
	struct block does_not = block_at(BASE + 64 * MIB, KIB, false);
	struct quota_reservation reservation;

	attach(2 * MIB);
	allocate(BASE, KIB);
	assert_int_equal(quota_reserve(0, false, KIB, &reservation), 0);
	assert_true(reservation.tentative);
	assert_int_equal(data(), 2 * MIB);
	assert_int_equal(quota_settle(&reservation, &fits), 0);
	assert_int_equal(data(), 2 * MIB);

	assert_int_equal(quota_reserve(0, false, KIB, &reservation), 0);
	assert_int_equal(quota_settle(&reservation, &does_not), -EDQUOT);
	quota_cancel(&reservation);
	assert_int_equal(data(), 2 * MIB);
	assert_false(quota_free_begin(does_not.address, &(struct quota_release){{0}, 0, false}));

	assert_int_equal(quota_reserve(0, false, KIB, &reservation), 0);
	quota_cancel(&reservation);
	assert_int_equal(quota_reserve(0, false, KIB, &reservation),
			 0); /* the turn was given back */
	quota_cancel(&reservation);
	assert_int_equal(quota_reserve(0, false, MIB + 1, &reservation),
			 -EDQUOT); /* not a small one */
	assert_int_equal(data(), 2 * MIB);
	release(BASE);
	release(BASE + MIB);
	assert_int_equal(data(), 0);
	assert_true(account_stamp() != UINT64_MAX);
}

/* The driver took more than was reckoned with: two granules, for an odd address. */
UNIT_TEST(test_took_more)
{
	struct block odd = block_at(BASE + MIB, 2 * MIB, false);
	struct quota_reservation reservation;

	attach(6 * MIB);
	assert_int_equal(quota_reserve(0, false, 2 * MIB, &reservation), 0);
	assert_int_equal(quota_settle(&reservation, &odd), 0);
	assert_int_equal(data(), 4 * MIB);
	odd.address += 64 * MIB;
	assert_int_equal(quota_reserve(0, false, 2 * MIB, &reservation), 0);
	assert_int_equal(quota_settle(&reservation, &odd), -EDQUOT);
	quota_cancel(&reservation);
	assert_int_equal(data(), 4 * MIB);
	release(BASE + MIB);
	assert_int_equal(data(), 0);
}

/* -- frees ------------------------------------------------------------------------------------ */

UNIT_TEST(test_free_undone)
{
	struct quota_release going;

	attach(GIB);
	allocate(BASE, 5 * MIB);
	assert_true(quota_free_begin(BASE, &going));
	assert_int_equal(data(), 6 * MIB); /* still charged: the driver still has it */
	quota_free_undo(&going);
	assert_int_equal(data(), 6 * MIB);
	release(BASE);
	assert_int_equal(data(), 0);
}

/* Another came to its granule meanwhile, and was charged for it. */
UNIT_TEST(test_free_undone_after_another)
{
	struct quota_release going;

	attach(GIB);
	allocate(BASE, KIB);
	assert_true(quota_free_begin(BASE, &going));
	allocate(BASE + MIB, KIB);
	quota_free_undo(&going);
	assert_int_equal(data() - account_spare_charge(0), 2 * MIB);
	release(BASE);
	release(BASE + MIB);
	assert_int_equal(data(), 0);
}

/* Another went from its granule meanwhile, and gave the charge back. */
UNIT_TEST(test_free_undone_after_another_went)
{
	struct quota_release going;

	attach(GIB);
	allocate(BASE, KIB);
	allocate(BASE + MIB, KIB);
	assert_true(quota_free_begin(BASE, &going));
	release(BASE + MIB);
	assert_int_equal(data(), 0);
	quota_free_undo(&going);
	assert_int_equal(data(), 2 * MIB);
	release(BASE);
	assert_int_equal(data(), 0);
}

UNIT_TEST(test_unknown)
{
	struct quota_release going;

	attach(GIB);
	assert_false(quota_free_begin(BASE, &going));
	allocate(BASE, 3 * MIB);
	release(BASE);
	assert_false(quota_free_begin(BASE, &going));
	assert_int_equal(data(), 0);
	assert_true(account_stamp() != UINT64_MAX);
}

/* -- managed memory --------------------------------------------------------------------------- */

#define CHUNK (128 * MIB)

UNIT_TEST(test_managed)
{
	struct quota_reservation reservation;

	attach(3 * CHUNK);
	allocate_as(true, BASE, 1);
	assert_int_equal(data(), CHUNK);
	assert_int_equal(account_managed_charge(0), CHUNK);
	allocate_as(true, BASE + GIB, CHUNK - 2 * MIB);
	assert_int_equal(data(), CHUNK);
	allocate_as(true, BASE + 2 * GIB, 1);
	assert_int_equal(data(), 2 * CHUNK);
	assert_int_equal(quota_reserve(0, true, 2 * CHUNK, &reservation), -EDQUOT);
	assert_int_equal(data(), 2 * CHUNK);
	assert_int_equal(quota_reserve(0, true, CHUNK, &reservation), 0);
	assert_int_equal(data(), 3 * CHUNK);
	quota_cancel(&reservation);
	assert_int_equal(data(), 2 * CHUNK);
	release(BASE + GIB);
	assert_int_equal(data(), CHUNK);
	release(BASE);
	release(BASE + 2 * GIB);
	assert_int_equal(data(), 0);
	assert_int_equal(account_managed_charge(0), 0);
}

/* Small managed allocations do not use the device's spare granule, nor leave one. */
UNIT_TEST(test_managed_apart)
{
	attach(GIB);
	allocate(BASE, KIB);
	allocate(BASE + KIB, KIB);
	assert_int_equal(account_spare_charge(0), 2 * MIB);
	allocate_as(true, BASE + GIB, KIB);
	allocate_as(true, BASE + GIB + KIB, KIB);
	assert_int_equal(data(), 4 * MIB + CHUNK);
	assert_int_equal(account_spare_charge(0), 2 * MIB);
	release(BASE + GIB);
	assert_int_equal(data(), 4 * MIB + CHUNK);
	release(BASE + GIB + KIB);
	assert_int_equal(data() - account_spare_charge(0), 2 * MIB);
	release(BASE);
	release(BASE + KIB);
	assert_int_equal(data(), 0);
}

/* -- no memory for the record ----------------------------------------------------------------- */

static long no_memory(long number)
{
	return number == SYS_mmap ? -ENOMEM : 0;
}

UNIT_TEST(test_no_memory)
{
	struct block block = block_at(BASE, 5 * MIB, false);
	struct quota_reservation reservation;

	attach(GIB);
	assert_int_equal(quota_reserve(0, false, 5 * MIB, &reservation), 0);
	sys_fault = no_memory;
	assert_int_equal(quota_settle(&reservation, &block),
			 -EDQUOT); /* the caller frees it, then */
	quota_cancel(&reservation);
	sys_fault = NULL;
	assert_int_equal(data(), 0);
	assert_true(account_stamp() != UINT64_MAX);
	allocate(BASE, 5 * MIB);
	assert_int_equal(data(), 6 * MIB);
}

/* -- threads ---------------------------------------------------------------------------------- */

#define THREADS 4
#define LIMIT   (64 * MIB)

/* Each thread has addresses of its own; a small one always gets a granule of its own, too. */
static void *work(void *arg)
{
	uint64_t base = BASE + (uint64_t)(uintptr_t)arg * 64 * GIB, held[32] = {0};
	unsigned seed = (unsigned)(uintptr_t)arg + 1;

	for (unsigned step = 0; step < 20000; step++) {
		unsigned i = (unsigned)rand_r(&seed) % 32;
		uint64_t size = 1 + (uint64_t)rand_r(&seed) % (step % 2 ? 6 * MIB : 100 * KIB);
		struct block block = block_at(base + i * GIB, size, false);
		struct quota_release going;
		struct quota_reservation reservation;

		if (quota_used(0) > LIMIT)
			return (void *)1;
		if (held[i]) {
			if (!quota_free_begin(block.address, &going))
				return (void *)2;
			quota_free_commit(&going);
			held[i] = 0;
		} else if (quota_reserve(0, false, size, &reservation) == 0) {
			if (step % 7 == 0)
				quota_cancel(&reservation);
			else if (quota_settle(&reservation, &block) == 0)
				held[i] = 1;
			else
				quota_cancel(&reservation);
		}
	}
	for (unsigned i = 0; i < 32; i++)
		if (held[i])
			release(base + i * GIB);
	return NULL;
}

UNIT_TEST(test_threads)
{
	pthread_t threads[THREADS];

	attach(LIMIT);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		void *wrong = NULL;

		assert_int_equal(pthread_join(threads[i], &wrong), 0);
		assert_null(wrong);
	}
	account_begin();
	account_return_spare(0);
	account_end();
	assert_int_equal(data(), 0);
	assert_int_equal(quota_used(0), 0);
	assert_true(account_stamp() != UINT64_MAX);
}
