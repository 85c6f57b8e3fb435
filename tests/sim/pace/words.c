/* Who waits for the bucket keeps HAMi's words as well, and hears of a region that is taken away. */
#include "pace.h"

static void go(struct attempt *attempt)
{
	attempt_begin(attempt, &launchers[0], launchers[0].linked, stream);
	sleep_ms(STAY_MS);
	attempt_waits(attempt);
}

static void hold_by_status(void)
{
	suspend(getpid());
}

static void let_go_by_status(void)
{
	resume(getpid());
}

static void hold_all(void)
{
	POKE(words->recent_kernel, -1);
}

static void let_all_go(void)
{
	POKE(words->recent_kernel, 0);
}

/* One reason to wait, then both, then the other one. */
static void both(void (*hold)(void), void (*let_go)(void))
{
	struct attempt attempt;

	into_debt(0);
	go(&attempt);
	hold();
	sleep_ms(STAY_MS);
	out_of_debt(0);
	sleep_ms(STAY_MS);
	attempt_waits(&attempt);
	into_debt(0);
	let_go();
	sleep_ms(STAY_MS);
	attempt_waits(&attempt);
	out_of_debt(0);
	attempt_ends(&attempt, CUDA_SUCCESS);
}

TEST(suspended)
{
	pace_start("50");
	CHECK_OK(launch());
	both(hold_by_status, let_go_by_status);
}

TEST(blocked)
{
	pace_start("50");
	CHECK_OK(launch());
	both(hold_all, let_all_go);
}

/* Each function that launches waits for the bucket. */
TEST(all_ways)
{
	struct attempt attempts[LAUNCHERS];

	pace_start("50");
	into_debt(0);
	for (size_t i = 0; i < LAUNCHERS; i++)
		attempt_begin(&attempts[i], &launchers[i], launchers[i].linked, stream);
	sleep_ms(2 * STAY_MS);
	for (size_t i = 0; i < LAUNCHERS; i++)
		attempt_waits(&attempts[i]);
	CHECK_EQUAL(PEEK(bucket_of(0)->charged), 0);
	out_of_debt(0);
	for (size_t i = 0; i < LAUNCHERS; i++)
		attempt_ends(&attempts[i], CUDA_SUCCESS);
}

/* Who waits is at work, to the monitor, as far as it was let go before. */
TEST(taken_away)
{
	struct attempt attempt;

	pace_start("50");
	into_debt(0);
	go(&attempt);
	CHECK(unlink(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE")) == 0);
	attempt_ends(&attempt, CUDA_ERROR_NOT_PERMITTED);
	CHECK_EQUAL(launch(), CUDA_ERROR_NOT_PERMITTED);
}

/* Its other calls are not held. */
TEST(other_calls_go)
{
	struct attempt attempt;

	pace_start("50");
	into_debt(0);
	go(&attempt);
	give(take(MIB));
	synchronise(stream);
	CHECK_OK(cuMemcpyHtoD_v2(take(1), "", 1));
	attempt_waits(&attempt);
	out_of_debt(0);
	attempt_ends(&attempt, CUDA_SUCCESS);
}
