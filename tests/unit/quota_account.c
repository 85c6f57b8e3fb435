/* The account: reserve, settle, cancel, free, against a real region. */
#include <pthread.h>

#include "allocation.h"
#include "quota_held_lock.h"

#undef UNIT_SET_UP
#define UNIT_SET_UP attached_make

UNIT_TEST_AROUND(test_attach, slice_make, slice_remove)
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
	quota_forked();
	assert_false(quota_attached());
	assert_false(quota_has_device(0));
	elsewhere = quota_slice;
	strcpy(elsewhere.region_path, "/nowhere/at/all");
	assert_true(quota_attach(&elsewhere, &gpu, 1, &fault) < 0);
	assert_false(quota_attached());
	assert_true(strlen(fault.text) > 0);
}

/* What a living process holds is kept to, whoever asks for more. */
UNIT_TEST_AROUND(test_attach_keeps_the_stricter, slice_make, slice_remove)
{
	struct region_setup setup = {.device_count = 1,
				     .device = {{.uuid = "GPU-a", .memory_bytes = 64 * MIB}}};
	struct region other = REGION_CLOSED;

	assert_int_equal(region_open(quota_slice.region_path, &setup, &other, NULL), 0);
	assert_int_equal(region_claim(&other, NULL), 0);
	attach(GIB);
	assert_int_equal(quota_limit(0), 64 * MIB);
	assert_int_equal(quota_limit(1), GIB); /* appended */
	quota_forked();
	attach(16 * MIB);
	assert_int_equal(quota_limit(0), 16 * MIB);
	region_close(&other);
}

/* -- in every order --------------------------------------------------------------------------- */

#define CHUNK (128 * MIB) /* of managed memory */

enum op {
	DONE,
	ALLOCATE, /* at an address, with all calls of an allocation that succeeds */
	RELEASE,  /* with all calls of a free that succeeds */
	RESERVE,  /* the first call of an allocation, by the allocation's number */
	SETTLE,   /* the driver has taken so many bytes at the address */
	CANCEL,   /* the driver has taken nothing */
	FREE,     /* the first call of a free, by its number */
	UNDO,     /* the driver refused the free */
	UNKNOWN,  /* a free of what is not at the address */
};

struct step {
	enum op op;
	uint64_t at; /* from BASE */
	uint64_t bytes;
	uint64_t mib, spare_mib; /* afterwards, the charge of data, and what of it is spare */
	unsigned number;
	int error;
	bool managed, tentative;
};

/* After all steps, no change is in progress. */
static const struct row {
	const char *name;
	uint64_t limit_bytes;
	struct step step[20];
} rows[] = {
	/* clang-format off */
	{"whole granules, up to the limit", 10 * MIB, {
		{ALLOCATE, 0, 2 * MIB + 1, .mib = 4},
		{ALLOCATE, 32 * MIB, 6 * MIB, .mib = 10},
		{RESERVE, 0, 2 * MIB, .error = -EDQUOT, .mib = 10},
		{RESERVE, 0, 1, .managed = true, .error = -EDQUOT, .mib = 10},
		{RELEASE, 0, 0, .mib = 6},
		{RESERVE, 0, 4 * MIB + 1, .error = -EDQUOT, .mib = 6},
		{ALLOCATE, 0, 4 * MIB, .mib = 10},
		{RELEASE, 0, 0, .mib = 6},
		{RELEASE, 32 * MIB, 0, .mib = 0}}},
	{"cancelled, as often as it goes", 10 * MIB, {
		{RESERVE, 0, 9 * MIB, .mib = 10}, {CANCEL, 0, 0, .mib = 0},
		{RESERVE, 0, 9 * MIB, .mib = 10}, {CANCEL, 0, 0, .mib = 0},
		{RESERVE, 0, 9 * MIB, .mib = 10}, {CANCEL, 0, 0, .mib = 0}}},
	{"what was charged for a block that fits is kept for the next", GIB, {
		{ALLOCATE, 0, KIB, .mib = 2},
		{ALLOCATE, 4 * KIB, KIB, .mib = 4, .spare_mib = 2},
		{ALLOCATE, 8 * KIB, KIB, .mib = 4, .spare_mib = 2},
		{ALLOCATE, 12 * KIB, KIB, .mib = 4, .spare_mib = 2},
		{ALLOCATE, 2 * MIB, KIB, .mib = 4}, /* it needs one */
		{ALLOCATE, 2 * MIB + 4 * KIB, KIB, .mib = 6, .spare_mib = 2},
		{RELEASE, 2 * MIB, 0, .mib = 6, .spare_mib = 2},
		/* its granule goes, and the spare with it */
		{RELEASE, 2 * MIB + 4 * KIB, 0, .mib = 2},
		{RELEASE, 0, 0, .mib = 2}, {RELEASE, 4 * KIB, 0, .mib = 2},
		{RELEASE, 8 * KIB, 0, .mib = 2}, {RELEASE, 12 * KIB, 0, .mib = 0}}},
	{"two that fit at once leave one spare", GIB, {
		{ALLOCATE, 0, KIB, .mib = 2},
		{RESERVE, 0, KIB, .number = 0, .mib = 4}, {RESERVE, 0, KIB, .number = 1, .mib = 6},
		{SETTLE, 4 * KIB, KIB, .number = 0, .mib = 6, .spare_mib = 2},
		{SETTLE, 8 * KIB, KIB, .number = 1, .mib = 4, .spare_mib = 2}}},
	{"a spare that was taken for a reservation goes back with it", GIB, {
		{ALLOCATE, 0, KIB, .mib = 2},
		{ALLOCATE, 4 * KIB, KIB, .mib = 4, .spare_mib = 2},
		{RESERVE, 0, KIB, .mib = 4},
		{CANCEL, 0, 0, .mib = 2}}},
	{"at the limit, a small block is tried without a charge", 2 * MIB, {
		{ALLOCATE, 0, KIB, .mib = 2},
		{RESERVE, 0, KIB, .tentative = true, .mib = 2}, {SETTLE, MIB, KIB, .mib = 2},
		{RESERVE, 0, KIB, .tentative = true, .mib = 2},
		{SETTLE, 64 * MIB, KIB, .error = -EDQUOT, .mib = 2}, {CANCEL, 0, 0, .mib = 2},
		{UNKNOWN, 64 * MIB, 0, .mib = 2},
		{RESERVE, 0, KIB, .tentative = true, .mib = 2}, {CANCEL, 0, 0, .mib = 2},
		/* the turn was given back */
		{RESERVE, 0, KIB, .tentative = true, .mib = 2}, {CANCEL, 0, 0, .mib = 2},
		{RESERVE, 0, MIB + 1, .error = -EDQUOT, .mib = 2}, /* not a small one */
		{RELEASE, 0, 0, .mib = 2}, {RELEASE, MIB, 0, .mib = 0}}},
	{"the driver takes two granules for one, for an odd address", 6 * MIB, {
		{RESERVE, 0, 2 * MIB, .mib = 2}, {SETTLE, MIB, 2 * MIB, .mib = 4},
		{RESERVE, 0, 2 * MIB, .mib = 6},
		{SETTLE, 65 * MIB, 2 * MIB, .error = -EDQUOT, .mib = 6}, {CANCEL, 0, 0, .mib = 4},
		{RELEASE, MIB, 0, .mib = 0}}},
	{"a free is undone, and was charged until then", GIB, {
		{ALLOCATE, 0, 5 * MIB, .mib = 6},
		{FREE, 0, 0, .mib = 6}, {UNDO, 0, 0, .mib = 6}, {RELEASE, 0, 0, .mib = 0}}},
	{"undone, after another block came to its granule and was charged for it", GIB, {
		{ALLOCATE, 0, KIB, .mib = 2}, {FREE, 0, 0, .mib = 2},
		{ALLOCATE, MIB, KIB, .mib = 4}, {UNDO, 0, 0, .mib = 2},
		{RELEASE, 0, 0, .mib = 2}, {RELEASE, MIB, 0, .mib = 0}}},
	{"undone, after another block went from its granule and gave the charge back", GIB, {
		{ALLOCATE, 0, KIB, .mib = 2}, {ALLOCATE, MIB, KIB, .mib = 4, .spare_mib = 2},
		{FREE, 0, 0, .mib = 4, .spare_mib = 2}, {RELEASE, MIB, 0, .mib = 0},
		{UNDO, 0, 0, .mib = 2}, {RELEASE, 0, 0, .mib = 0}}},
	{"unknown blocks", GIB, {
		{UNKNOWN, 0, 0, .mib = 0}, {ALLOCATE, 0, 3 * MIB, .mib = 4},
		{RELEASE, 0, 0, .mib = 0}, {UNKNOWN, 0, 0, .mib = 0}}},
	{"managed memory, in chunks", 3 * CHUNK, {
		{ALLOCATE, 0, 1, .managed = true, .mib = 128},
		{ALLOCATE, GIB, CHUNK - 2 * MIB, .managed = true, .mib = 128},
		{ALLOCATE, 2 * GIB, 1, .managed = true, .mib = 256},
		{RESERVE, 0, 2 * CHUNK, .managed = true, .error = -EDQUOT, .mib = 256},
		{RESERVE, 0, CHUNK, .managed = true, .mib = 384}, {CANCEL, 0, 0, .mib = 256},
		{RELEASE, GIB, 0, .mib = 128},
		{RELEASE, 0, 0, .mib = 128}, {RELEASE, 2 * GIB, 0, .mib = 0}}},
	{"small managed blocks neither use the spare granule nor leave one", GIB, {
		{ALLOCATE, 0, KIB, .mib = 2}, {ALLOCATE, KIB, KIB, .mib = 4, .spare_mib = 2},
		{ALLOCATE, GIB, KIB, .managed = true, .mib = 132, .spare_mib = 2},
		{ALLOCATE, GIB + KIB, KIB, .managed = true, .mib = 132, .spare_mib = 2},
		{RELEASE, GIB, 0, .mib = 132, .spare_mib = 2},
		{RELEASE, GIB + KIB, 0, .mib = 2},
		{RELEASE, 0, 0, .mib = 2}, {RELEASE, KIB, 0, .mib = 0}}},
	/* clang-format on */
};

static struct quota_reservation reservations[2];
static struct quota_release frees[2];

/* Returns the error of the call. */
static int perform(const struct step *step)
{
	struct quota_reservation *reservation = &reservations[step->number];
	struct quota_release *going = &frees[step->number];
	uint64_t address = BASE + step->at;
	struct block block = block_at(address, step->bytes, step->managed);
	int error = 0;

	switch (step->op) {
	case ALLOCATE:
		allocate_as(step->managed, address, step->bytes);
		break;
	case RELEASE:
		release(address);
		break;
	case RESERVE:
		error = quota_reserve(0, step->managed, step->bytes, reservation);
		if (!error)
			assert_int_equal(reservation->tentative, step->tentative);
		break;
	case SETTLE:
		error = quota_settle(reservation, &block);
		break;
	case CANCEL:
		quota_cancel(reservation);
		break;
	case FREE:
	case UNKNOWN:
		assert_int_equal(quota_free_begin(address, going), step->op == FREE);
		break;
	case UNDO:
		quota_free_undo(going);
		break;
	case DONE:
		break;
	}
	return error;
}

UNIT_ROWS(rows)
{
	attach_anew(row->limit_bytes);
	for (const struct step *step = row->step; step->op != DONE; step++) {
		int error = perform(step);

		if (error != step->error || data() != step->mib * MIB ||
		    account_spare_charge(0) != step->spare_mib * MIB)
			fail_msg("step %u: error %d, %llu bytes are charged, and %llu are spare",
				 (unsigned)(step - row->step), error, (unsigned long long)data(),
				 (unsigned long long)account_spare_charge(0));
		assert_int_equal(quota_used(0), data());
		assert_int_equal(own_usage(1).total, 0);
	}
	assert_true(is_quiet());
}

/* -- more than there is ----------------------------------------------------------------------- */

UNIT_TEST(test_overflowing)
{
	static const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 2 * MIB + 2,
					 (uint64_t)1 << 63};
	struct quota_reservation reservation;

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		assert_int_equal(quota_reserve(0, false, sizes[i], &reservation), -EDQUOT);
		assert_int_equal(quota_reserve(0, true, sizes[i], &reservation), -EDQUOT);
		assert_int_equal(quota_used(0), 0);
	}
	assert_true(is_quiet());
}

/* The same where there is no limit to stop them. */
UNIT_TEST(test_overflowing_without_limit)
{
	struct quota_reservation a, b;

	quota_slice.env.cores_pct[0] = 50; /* a slice all the same */
	attach_anew(0);
	assert_int_equal(quota_reserve(0, false, UINT64_MAX, &a), -EDQUOT);
	assert_int_equal(quota_reserve(0, false, (uint64_t)1 << 60, &a), 0);
	assert_int_equal(quota_reserve(0, false, (uint64_t)1 << 63, &b), -EDQUOT);
	assert_int_equal(quota_reserve(0, true, (uint64_t)1 << 63, &b), -EDQUOT);
	quota_cancel(&a);
	assert_int_equal(quota_used(0), 0);
}

UNIT_TEST(test_spare_is_returned_once)
{
	allocate(BASE, KIB);
	allocate(BASE + 4 * KIB, KIB);
	account_begin();
	account_return_spare(0);
	account_return_spare(0);
	account_end();
	assert_rests_at(2 * MIB);
}

UNIT_TEST(test_managed_charge)
{
	allocate(BASE, KIB);
	allocate_as(true, BASE + GIB, 1);
	assert_int_equal(account_managed_charge(0), CHUNK);
	release(BASE + GIB);
	assert_int_equal(account_managed_charge(0), 0);
}

/* There is no memory for the record. */
UNIT_TEST(test_no_memory)
{
	struct block block = block_at(BASE, 5 * MIB, false);
	struct quota_reservation reservation;

	assert_int_equal(quota_reserve(0, false, 5 * MIB, &reservation), 0);
	sys_fault = fail_mmap;
	assert_int_equal(quota_settle(&reservation, &block), -EDQUOT); /* the caller frees it */
	quota_cancel(&reservation);
	sys_fault = NULL;
	assert_rests_at(0);
	allocate(BASE, 5 * MIB);
	assert_int_equal(data(), 6 * MIB);
}

/* -- threads ---------------------------------------------------------------------------------- */

#define LIMIT (64 * MIB)

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
	attach_anew(LIMIT);
	assert_in_threads(work);
	account_begin();
	account_return_spare(0);
	account_end();
	assert_rests_at(0);
	assert_int_equal(quota_used(0), 0);
}
