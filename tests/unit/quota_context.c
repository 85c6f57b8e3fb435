/* Contexts in the account: reserving, settling, learning the cost, and the comparison with NVML. */
#include "allocation.h"
#include "clock.h"
#include "compare.h"
#include "context.h"
#include "quota_fixture.h"
#include "sys.h"

#define COST         (518 * MIB)
#define LEAST        (264 * MIB)
#define HIDDEN       (10 * MIB)
#define HIDDEN_AGAIN (6 * MIB)
#define UNKNOWN      UINT64_MAX
#define EARLY_NS     ((uint64_t)10000000) /* half of the time between two comparisons */

static int begin(void **state)
{
	if (slice_make(state))
		return -1;
	attach(8 * GIB);
	return 0;
}

#undef UNIT_SET_UP
#define UNIT_SET_UP begin

static void end_context(uint64_t context)
{
	quota_ending_begin();
	quota_context_end(context);
	quota_ending_end();
}

static void assert_books(uint64_t context, uint64_t module, uint64_t data_bytes, uint64_t offset)
{
	struct vgpu_hami_usage usage = own_usage(0);

	assert_int_equal(usage.context, context);
	assert_int_equal(usage.module, module);
	assert_int_equal(usage.data, data_bytes);
	assert_int_equal(usage.offset, offset);
	assert_int_equal(usage.total, context + module + data_bytes + offset);
}

static uint64_t learnt(void)
{
	return account_region.file->own.device[0].context_cost;
}

static void reconcile_with(int device, const uint64_t *nvml_bytes)
{
	struct quota_ticket ticket = quota_reconcile_ticket(device);

	quota_reconcile(device, &ticket, nvml_bytes);
}

static void reconcile(uint64_t nvml_bytes)
{
	reconcile_with(0, &nvml_bytes);
}

static void reconcile_since(const struct quota_ticket *ticket, uint64_t nvml_bytes)
{
	quota_reconcile(0, ticket, &nvml_bytes);
}

/* The books of a first context after NVML's figure. */
static void reconcile_to(uint64_t nvml_bytes, uint64_t context, uint64_t module,
			 uint64_t data_bytes)
{
	reconcile(nvml_bytes);
	assert_books(context, module, data_bytes, HIDDEN);
}

static void reconcile_since_to(const struct quota_ticket *ticket, uint64_t nvml_bytes,
			       uint64_t context, uint64_t module, uint64_t data_bytes)
{
	reconcile_since(ticket, nvml_bytes);
	assert_books(context, module, data_bytes, HIDDEN);
}

static struct quota_context_reservation reservation;

static void reserve(int error)
{
	assert_int_equal(quota_context_reserve(0, LEAST, &reservation), error);
}

static void settle(uint64_t context, uint64_t at_most, uint64_t measured)
{
	assert_int_equal(quota_context_settle(&reservation, context, at_most, measured), 0);
}

static void make(uint64_t context, uint64_t at_most)
{
	reserve(0);
	settle(context, at_most, 0);
}

/* A context whose cost is known. */
static void make_known(uint64_t context)
{
	make(context, COST + HIDDEN);
	reconcile(COST);
	assert_int_equal(learnt(), COST);
}

UNIT_TEST(test_first)
{
	struct quota_ticket ticket;

	reserve(0);
	assert_false(reservation.known);
	assert_books(CONTEXT_BYTES_MOST, 0, 0, HIDDEN);
	assert_false(quota_context_is_tight(&reservation, COST + HIDDEN));
	settle(7, COST + 9 * MIB, 0);
	assert_books(COST + 9 * MIB, 0, 0, HIDDEN);
	assert_int_equal(learnt(), 0);
	assert_true(quota_reconcile_due(0)); /* at once: it is a guess */
	ticket = quota_reconcile_ticket(0);
	reconcile_since_to(&ticket, COST, COST, 0, 0);
	assert_int_equal(learnt(), COST);
	assert_false(quota_reconcile_due(0));
	end_context(7);
	assert_books(0, 0, 0, 0);
	assert_int_equal(learnt(), COST);
}

UNIT_TEST(test_known)
{
	make_known(1);
	reserve(0);
	assert_true(reservation.known);
	assert_books(2 * COST, 0, 0, HIDDEN + HIDDEN_AGAIN);
	assert_false(quota_context_is_tight(&reservation, UNKNOWN));
	settle(2, UNKNOWN, 0);
	assert_books(2 * COST, 0, 0, HIDDEN + HIDDEN_AGAIN);
	end_context(1);
	assert_books(COST, 0, 0, HIDDEN);
	end_context(2);
	assert_books(0, 0, 0, 0);
}

UNIT_TEST(test_cancel)
{
	reserve(0);
	quota_context_cancel(&reservation);
	assert_books(0, 0, 0, 0);
	make_known(1);
	reserve(0);
	quota_context_cancel(&reservation);
	assert_books(COST, 0, 0, HIDDEN);
	assert_true(is_quiet());
}

UNIT_TEST(test_refused)
{
	attach_anew(LEAST + HIDDEN - 1);
	reserve(-EDQUOT);
	assert_books(0, 0, 0, 0);
	assert_true(is_quiet());
	attach_anew(5 * MIB); /* not even what is hidden */
	assert_int_equal(quota_context_reserve(0, 0, &reservation), -EDQUOT);
	assert_books(0, 0, 0, 0);
}

UNIT_TEST(test_second_refused)
{
	attach_anew(800 * MIB);
	make_known(1);
	for (unsigned round = 0; round < 3; round++) {
		reserve(-EDQUOT);
		assert_books(COST, 0, 0, HIDDEN);
	}
}

/* Less than a guess wants is left: then it is measured, and fits or does not. */
UNIT_TEST(test_tight)
{
	attach_anew(600 * MIB);
	reserve(0);
	assert_books(590 * MIB, 0, 0, HIDDEN);
	assert_true(quota_context_is_tight(&reservation, 591 * MIB));
	assert_false(quota_context_is_tight(&reservation, 590 * MIB));
	settle(1, 700 * MIB, COST);
	assert_books(COST, 0, 0, HIDDEN);
	end_context(1);
	reserve(0);
	assert_int_equal(quota_context_settle(&reservation, 1, 700 * MIB, 591 * MIB), -EDQUOT);
	quota_context_cancel(&reservation);
	assert_books(0, 0, 0, 0);
	assert_true(is_quiet());
}

/* What NVML counts has the other contexts and their contents in it. */
UNIT_TEST(test_tight_beside_another)
{
	attach_anew(1100 * MIB);
	make(1, COST);
	allocate(BASE, 10 * MIB);
	reserve(0);
	assert_true(quota_context_is_tight(&reservation, 2 * COST + 30 * MIB));
	settle(2, 2 * COST + 30 * MIB, 2 * COST + 10 * MIB);
	assert_books(2 * COST, 0, 10 * MIB, HIDDEN + HIDDEN_AGAIN);
}

UNIT_TEST(test_least_is_learnt)
{
	make(1, GIB);
	reconcile(600 * MIB); /* with a module in it */
	assert_int_equal(learnt(), 600 * MIB);
	end_context(1);
	account_region.file->own.device[0].context_cost = 0;
	make(2, GIB);
	account_region.file->own.device[0].context_cost = 600 * MIB; /* another process's */
	reconcile(COST);
	assert_int_equal(learnt(), COST);
}

/* Code that was loaded before the first comparison, and is unloaded. */
UNIT_TEST(test_less_is_learnt_later)
{
	make(1, GIB);
	reconcile(900 * MIB);
	assert_int_equal(learnt(), 900 * MIB);
	reconcile(COST);
	assert_int_equal(learnt(), COST);
	make(2, UNKNOWN);
	reconcile(2 * COST + 10 * MIB);
	assert_int_equal(learnt(), COST);
}

/* The cost that an earlier process left would fill the slice. While anything is held, it is
 * believed. */
UNIT_TEST(test_too_large_a_cost)
{
	attach_anew(800 * MIB);
	account_region.file->own.device[0].context_cost = GIB;
	reserve(0);
	assert_false(reservation.known);
	settle(1, COST + HIDDEN, 0);
	reconcile(COST);
	assert_int_equal(learnt(), COST);
	account_region.file->own.device[0].context_cost = 300 * MIB;
	reserve(-EDQUOT);
	assert_books(COST, 0, 0, HIDDEN);
	end_context(1);
	assert_true(is_quiet());
}

UNIT_TEST(test_end)
{
	struct block big = block_at(BASE, 7 * MIB, false), other = block_at(BASE + GIB, 1, false);
	struct quota_reservation allocation;
	struct quota_release going;

	make_known(1);
	make(2, UNKNOWN);
	allocate(big.address, big.size_bytes);
	allocate_as(true, BASE + 2 * GIB, 1);
	other.context = 2;
	assert_int_equal(quota_reserve(0, false, 1, &allocation), 0);
	assert_int_equal(quota_settle(&allocation, &other), 0);
	assert_int_equal(data(), 10 * MIB + 128 * MIB);
	end_context(0);
	end_context(77); /* unknown */
	assert_int_equal(data(), 10 * MIB + 128 * MIB);
	end_context(1);
	assert_books(COST, 0, 2 * MIB, HIDDEN);
	assert_false(quota_free_begin(BASE, &going));
	end_context(1); /* again */
	assert_books(COST, 0, 2 * MIB, HIDDEN);
	release(BASE + GIB);
	end_context(2);
	assert_books(0, 0, 0, 0);
}

/* -- reconciling ------------------------------------------------------------------------------ */

UNIT_TEST(test_module)
{
	make_known(1);
	allocate(BASE, 10 * MIB);
	allocate_as(true, BASE + GIB, 1); /* in no figure */
	reconcile_to(COST + 10 * MIB + 20 * MIB, COST, 20 * MIB, 138 * MIB);
	reconcile_to(COST + 10 * MIB + 4 * MIB, COST, 4 * MIB, 138 * MIB);
	/* The context was charged too high. */
	reconcile_to(COST + 10 * MIB - 8 * MIB, COST - 8 * MIB, 0, 138 * MIB);
	/* Less than a context can take: that is not our process. */
	reconcile_to(0, COST - 8 * MIB, 0, 138 * MIB);
}

/* The granule that is charged ahead is not on the device. */
UNIT_TEST(test_spare_is_left_out)
{
	make_known(1);
	allocate(BASE, KIB);
	allocate(BASE + KIB, KIB);
	assert_int_equal(account_spare_charge(0), 2 * MIB);
	reconcile_to(COST + 2 * MIB, COST, 0, 4 * MIB);
}

/* What is measured is booked even where the quota is passed by it. */
UNIT_TEST(test_beyond_the_limit)
{
	struct quota_reservation allocation;

	attach_anew(600 * MIB);
	make_known(1);
	reconcile_to(COST + 100 * MIB, COST, 100 * MIB, 0);
	assert_int_equal(quota_reserve(0, false, 2 * MIB, &allocation), -EDQUOT);
	reconcile(COST);
	allocate(BASE, 2 * MIB);
}

UNIT_TEST(test_in_motion)
{
	struct quota_reservation allocation;
	struct quota_ticket before;

	make_known(1);
	before = quota_reconcile_ticket(0);
	allocate(BASE, 2 * MIB);                                       /* since the ticket */
	reconcile_since_to(&before, COST + 2 * MIB, COST, 0, 2 * MIB); /* its, or of before */
	reconcile_since_to(&before, COST + 12 * MIB, COST, 10 * MIB, 2 * MIB);
	assert_int_equal(quota_reserve(0, false, 2 * MIB, &allocation), 0);
	assert_int_equal(account_stamp(), UINT64_MAX);
	reconcile_to(COST + 2 * MIB, COST, 10 * MIB, 4 * MIB); /* one is under way */
	reconcile_to(COST + 34 * MIB, COST, 30 * MIB, 4 * MIB);
	before = quota_reconcile_ticket(0);
	quota_cancel(&allocation);
	/* May be of before. */
	reconcile_since_to(&before, COST + 34 * MIB, COST, 30 * MIB, 2 * MIB);
	before = quota_reconcile_ticket(0);
	allocate(BASE + GIB, 20 * MIB);
	release(BASE + GIB);
	/* Or of when it was there. */
	reconcile_since_to(&before, COST + 52 * MIB, COST, 30 * MIB, 2 * MIB);
	reconcile_with(0, NULL); /* it cannot say */
	assert_books(COST, 30 * MIB, 2 * MIB, HIDDEN);
	reconcile_to(COST + 72 * MIB, COST, 70 * MIB, 2 * MIB);
}

/* Two blocks in one granule: the free of the first is still in the driver when the second's has
 * given the granule back. The driver holds it, and it is no growth. */
UNIT_TEST(test_frees_of_a_granule)
{
	struct quota_release first, second;

	make_known(1);
	allocate(BASE, KIB);
	allocate(BASE + 4 * KIB, KIB);
	assert_books(COST, 0, 4 * MIB, HIDDEN); /* and a spare one */
	assert_true(quota_free_begin(BASE, &first));
	assert_true(quota_free_begin(BASE + 4 * KIB, &second));
	quota_free_commit(&second);
	assert_books(COST, 0, 0, HIDDEN);
	reconcile_to(COST + 2 * MIB, COST, 0, 0);
	reconcile_to(COST + 20 * MIB, COST, 16 * MIB, 0); /* more than it can hold */
	quota_free_commit(&first);
	reconcile_to(COST + 16 * MIB, COST, 16 * MIB, 0);
}

/* A tentative block may take a granule without a charge until the hook has found out, which is no
 * growth. */
UNIT_TEST(test_tentative_in_motion)
{
	struct quota_reservation allocation;

	attach_anew(COST + HIDDEN + 2 * MIB);
	make(1, COST);
	reconcile(COST);
	allocate(BASE, 2 * MIB);
	assert_int_equal(quota_reserve(0, false, KIB, &allocation), 0);
	assert_true(allocation.tentative);
	reconcile_to(COST + 4 * MIB, COST, 0, 2 * MIB);
	reconcile_to(COST + 6 * MIB, COST, 2 * MIB, 2 * MIB); /* more than it can take */
	quota_cancel(&allocation);
	reconcile_to(COST + 2 * MIB, COST, 0, 2 * MIB);
}

/* Managed memory is in no figure, also where it comes and goes meanwhile. */
UNIT_TEST(test_managed_in_motion)
{
	struct quota_ticket before;

	make_known(1);
	allocate_as(true, BASE + GIB, 1);
	before = quota_reconcile_ticket(0);
	allocate_as(true, BASE + 2 * GIB, 128 * MIB);
	reconcile_since_to(&before, COST + 130 * MIB, COST, 2 * MIB, 256 * MIB);
	before = quota_reconcile_ticket(0);
	release(BASE + GIB);
	allocate(BASE, 100 * MIB);
	reconcile_since_to(&before, COST + 102 * MIB, COST, 2 * MIB, 228 * MIB);
	reconcile_to(COST + 100 * MIB + 50 * MIB, COST, 50 * MIB, 228 * MIB);
}

static void expect(uint64_t bytes)
{
	uint64_t got;

	assert_int_equal(quota_driver_reserve(0, bytes, bytes, &got), 0);
	quota_driver_expect(0, bytes);
	quota_driver_settle(0, bytes, bytes);
}

/* What the driver will take later stays charged until it has. */
UNIT_TEST(test_expected)
{
	make_known(1);
	reconcile(COST + 10 * MIB);
	expect(100 * MIB);
	expect(300 * MIB);
	assert_books(COST, 410 * MIB, 0, HIDDEN);
	reconcile_to(COST + 10 * MIB, COST, 410 * MIB, 0);
	reconcile_to(COST + 70 * MIB, COST, 470 * MIB, 0);  /* code */
	reconcile_to(COST + 170 * MIB, COST, 470 * MIB, 0); /* the first */
	allocate(BASE, 200 * MIB); /* is no reason to think so of the second */
	reconcile_to(COST + 370 * MIB, COST, 470 * MIB, 200 * MIB);
	make(2, UNKNOWN);
	reconcile(2 * COST + 370 * MIB);
	assert_books(2 * COST, 470 * MIB, 200 * MIB, HIDDEN + HIDDEN_AGAIN);
	reconcile(2 * COST + 670 * MIB);
	assert_books(2 * COST, 470 * MIB, 200 * MIB, HIDDEN + HIDDEN_AGAIN);
	reconcile(2 * COST + 370 * MIB);
	assert_books(2 * COST, 170 * MIB, 200 * MIB, HIDDEN + HIDDEN_AGAIN);
	expect(300 * MIB);
	end_context(1);
	end_context(2);
	assert_books(0, 0, 0, 0);
	make(3, UNKNOWN);
	reconcile_to(COST, COST, 0, 0);
}

/* Not more than once a second, and then for one caller. */
UNIT_TEST(test_due)
{
	make_known(1);
	quota_reconcile_due(0); /* starts the clock */
	assert_false(quota_reconcile_due(0));
	sys_sleep_ns(NS_PER_S + 20 * NS_PER_MS);
	assert_true(quota_reconcile_due(0));
	assert_false(quota_reconcile_due(0));
}

/* Where NVML answers slowly, comparisons are made less often, but at least every half second. A few
 * slow answers do not count: the first question starts NVML, and threads lose their processor. */
UNIT_TEST(test_slow_answers)
{
	make_known(1);
	reconcile(COST);
	quota_reconcile_due(0); /* starts the clock */
	for (unsigned i = 0; i < 4; i++)
		quota_reconcile_took(10 * NS_PER_MS);
	sys_sleep_ns(40 * NS_PER_MS);
	assert_true(quota_reconcile_due(0));
	for (unsigned i = 0; i < 10; i++)
		quota_reconcile_took(10 * NS_PER_MS);
	sys_sleep_ns(40 * NS_PER_MS);
	assert_false(quota_reconcile_due(0));
	sys_sleep_ns(500 * NS_PER_MS);
	assert_true(quota_reconcile_due(0));
	/* Code makes ten due at once, which take 0.1 s. Then one is due before an allocation. */
	quota_expect_code();
	for (unsigned i = 0; i < 10; i++)
		assert_true(quota_reconcile_due_at_wait(0));
	assert_false(quota_reconcile_due(0));
	sys_sleep_ns(110 * NS_PER_MS);
	assert_false(quota_reconcile_due_at_wait(0));
	assert_true(quota_reconcile_due(0));
	quota_reconcile_took(0);
	assert_true(quota_reconcile_due_at_wait(0));
}

/* Code was expected: a comparison is due for every caller until one has begun later. */
UNIT_TEST(test_code_due)
{
	struct quota_ticket early;

	make_known(1);
	reconcile(COST);
	quota_reconcile_due(0); /* starts the clock */
	assert_false(quota_reconcile_due(0));
	early = quota_reconcile_ticket(0);
	quota_expect_code();
	assert_true(quota_reconcile_due(0));
	assert_true(quota_reconcile_due(0));
	reconcile_since(&early, COST);
	assert_true(quota_reconcile_due(0));
	reconcile(COST);
	assert_false(quota_reconcile_due(0));
}

/* Whether a comparison is due before its time has come. On a busy machine, its time may come
 * between the two questions: then they are asked again. */
static bool is_due_early(void)
{
	uint64_t began_ns;
	bool due;

	do {
		began_ns = clock_steady_ns();
		quota_reconcile_due(0);
		due = quota_reconcile_due(0);
	} while (due && clock_steady_ns() - began_ns >= EARLY_NS);
	return due;
}

/* NVML has not been asked: code that is expected does not start it. */
UNIT_TEST(test_code_starts_nothing)
{
	quota_expect_code();
	assert_false(is_due_early());
}

/* A comparison of one device says nothing about another one's code. */
UNIT_TEST(test_code_due_on_each)
{
	struct quota_ticket ticket;

	for (int device = 0; device < 2; device++) {
		assert_int_equal(quota_context_reserve(device, LEAST, &reservation), 0);
		assert_int_equal(
			quota_context_settle(&reservation, 1 + (unsigned)device, COST + HIDDEN, 0),
			0);
		ticket = quota_reconcile_ticket(device);
		quota_reconcile(device, &ticket, &(uint64_t){COST});
		quota_reconcile_due(device); /* starts the clock */
	}
	quota_expect_code();
	reconcile(COST);
	assert_true(quota_reconcile_due(1));
}

static bool doubts(uint64_t nvml_bytes)
{
	struct quota_ticket ticket = quota_reconcile_ticket(0);

	return quota_doubts(0, &ticket, nvml_bytes);
}

/* Several figures in a row are less than a context can take. Once the process was found in NVML's
 * list, the figures are its own. */
UNIT_TEST(test_doubts_low_figures)
{
	make(1, COST + 9 * MIB);
	for (unsigned i = 0; i < 5; i++) {
		assert_false(doubts(LEAST - 1));
		reconcile(LEAST - 1);
	}
	assert_true(doubts(LEAST - 1));
	assert_books(COST + 9 * MIB, 0, 0, HIDDEN);
	quota_found();
	assert_false(doubts(LEAST - 1));
	reconcile_to(COST + 30 * MIB, COST + 30 * MIB, 0, 0);
	reconcile_to(COST + 50 * MIB, COST + 30 * MIB, 20 * MIB, 0);
}

/* The first figures were what they should be by chance. */
UNIT_TEST(test_doubts_what_it_believed)
{
	make_known(1);
	allocate(BASE, GIB);
	for (unsigned i = 0; i < 5; i++) {
		assert_false(doubts(COST));
		reconcile(COST);
	}
	assert_true(doubts(COST));
	assert_books(COST, 0, GIB, HIDDEN);
	reconcile(COST + GIB);
	assert_false(doubts(COST + GIB));
	release(BASE);
}

UNIT_TEST(test_doubts_high_figures)
{
	make_known(1);
	assert_false(doubts(COST + CONTEXT_BYTES_MOST));
	assert_true(doubts(COST + CONTEXT_BYTES_MOST + 1));
	quota_found();
	assert_false(doubts(COST + 4 * GIB));
}

/* A figure below what a context can take is another process's: NVML is not believed from then on,
 * and nothing is lowered by it. For good, so this is device 1 and its test alone. */
UNIT_TEST(test_distrust)
{
	assert_int_equal(quota_context_reserve(1, LEAST, &reservation), 0);
	settle(5, COST + 9 * MIB, 0);
	for (int i = 0; i < 5; i++) /* in a row, and nothing else ever */
		reconcile_with(1, &(uint64_t){LEAST - 1});
	assert_int_equal(own_usage(1).context, COST + 9 * MIB);
	assert_int_equal(account_region.file->own.device[1].context_cost, 0);
	reconcile_with(1, &(uint64_t){COST});
	reconcile_with(1, &(uint64_t){4 * GIB});
	assert_int_equal(own_usage(1).context, COST + 9 * MIB);
	assert_int_equal(own_usage(1).module, 0);
	end_context(5);
	assert_int_equal(own_usage(1).total, 0);
}
