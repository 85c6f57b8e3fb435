/* Who waits, for how long, and what ends it. */
#include "launch.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* -- several threads -- */

#define THREADS 8

static uint64_t launched;
static bool enough;

static void *launch_on(void *arg)
{
	CHECK_OK(cuCtxSetCurrent(context));
	while (!PEEK(enough)) {
		CHECK_OK(launch());
		__atomic_fetch_add(&launched, 1, __ATOMIC_SEQ_CST);
		usleep(100);
	}
	return arg;
}

static void goes_on(void)
{
	uint64_t before = PEEK(launched);

	for (unsigned ms = 0; PEEK(launched) < before + 10 * THREADS; ms++) {
		CHECK(ms < LONG_MS);
		sleep_ms(1);
	}
}

/* But for who was between the gate and the driver: one launch each. */
static void stands_still(void)
{
	uint64_t before = PEEK(launched);

	sleep_ms(2 * STAY_MS);
	CHECK_AT_MOST(PEEK(launched), before + THREADS);
}

TEST(many_threads)
{
	struct threads threads;

	launch_start("4g");
	threads = threads_start(THREADS, launch_on);
	for (unsigned round = 0; round < 3; round++) {
		goes_on();
		suspend(getpid());
		stands_still();
		resume(getpid());
		goes_on();
		POKE(words->recent_kernel, -1);
		stands_still();
		POKE(words->recent_kernel, 0);
	}
	goes_on();
	POKE(enough, true);
	threads_join(threads);
}

/* Its other calls are not held. */
TEST(other_calls_go)
{
	struct attempt attempt;

	launch_start("4g");
	suspend(getpid());
	attempt_begin(&attempt, &launchers[0], launchers[0].linked, stream);
	sleep_ms(STAY_MS);
	give(take(MIB));
	CHECK_OK(cuStreamSynchronize(stream));
	CHECK_OK(cuMemcpyHtoD_v2(take(1), "", 1));
	attempt_waits(&attempt);
	resume(getpid());
	attempt_ends(&attempt, CUDA_SUCCESS);
}

static void nothing(int number)
{
	(void)number;
}

/* Signals neither end a wait nor spoil errno. */
TEST(signals)
{
	struct attempt attempt;
	struct sigaction action = {.sa_handler = nothing};

	launch_start("4g");
	sigaction(SIGUSR1, &action, NULL);
	suspend(getpid());
	attempt_begin(&attempt, &launchers[0], launchers[0].linked, stream);
	for (unsigned i = 0; i < 20; i++) {
		sleep_ms(10);
		pthread_kill(attempt.thread, SIGUSR1);
	}
	attempt_waits(&attempt);
	resume(getpid());
	attempt_ends(&attempt, CUDA_SUCCESS);
	errno = EXDEV;
	POKE(words->recent_kernel, 1);
	CHECK_OK(launch());
	CHECK_EQUAL(errno, EXDEV);
}

/* -- several processes -- */

static void launches_when_told(int wire)
{
	launch_start("4g");
	tell(wire, (uint64_t)getpid());
	for (;;) {
		hear(wire);
		CHECK_OK(launch());
		tell(wire, 1);
	}
}

static void begin(struct member *member)
{
	*member = member_start(launches_when_told);
	CHECK_EQUAL(hear(member->wire), member->pid);
}

static void launches(struct member *member)
{
	tell(member->wire, 1);
	CHECK_EQUAL(hear(member->wire), 1);
}

static bool has_said(const struct member *member)
{
	uint64_t word;

	return recv(member->wire, &word, sizeof(word), MSG_PEEK | MSG_DONTWAIT) > 0;
}

static void waits(struct member *member)
{
	tell(member->wire, 1);
	sleep_ms(STAY_MS);
	CHECK(!has_said(member));
}

/* One is suspended, the other goes on; or both are blocked. */
TEST(one_or_all)
{
	struct member a, b;

	begin(&a);
	begin(&b);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	words_map();
	suspend(a.pid);
	waits(&a);
	for (unsigned i = 0; i < 100; i++)
		launches(&b);
	CHECK(!has_said(&a));
	resume(a.pid);
	CHECK_EQUAL(hear(a.wire), 1);
	POKE(words->recent_kernel, -1);
	waits(&a);
	waits(&b);
	CHECK_EQUAL(PEEK(words->recent_kernel), -1);
	POKE(words->recent_kernel, 0);
	CHECK_EQUAL(hear(a.wire), 1);
	CHECK_EQUAL(hear(b.wire), 1);
	member_kill(&a);
	member_kill(&b);
}

/* Who is killed as it waits leaves its slot to the next, who does not inherit the wait. */
TEST(killed)
{
	struct member a, b;
	int slot;

	begin(&a);
	words_map();
	slot = ledger_slot(a.pid);
	suspend(a.pid);
	waits(&a);
	member_kill(&a);
	ledger_reap();
	begin(&b);
	CHECK_EQUAL(ledger_slot(b.pid), slot);
	launches(&b);
	member_kill(&b);
}

/* -- fork -- */

/* A child has its parent's CUDA, which is none, and not its suspension. */
TEST(forked)
{
	struct attempt attempt;

	launch_start("4g");
	CHECK_OK(launch());
	suspend(getpid());
	attempt_begin(&attempt, &launchers[0], launchers[0].linked, stream);
	sleep_ms(STAY_MS);
	CHECK_EQUAL(child_of(as_the_driver_says), 0);
	attempt_waits(&attempt);
	resume(getpid());
	attempt_ends(&attempt, CUDA_SUCCESS);
	POKE(words->recent_kernel, -1);
	CHECK_EQUAL(child_of(as_the_driver_says), 0);
	CHECK_EQUAL(PEEK(words->recent_kernel), -1);
}

/* -- a region that is taken away -- */

TEST(taken_away)
{
	struct attempt attempt;

	launch_start("4g");
	suspend(getpid());
	attempt_stays(&attempt, &launchers[0]);
	CHECK(unlink(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE")) == 0);
	attempt_ends(&attempt, CUDA_ERROR_NOT_PERMITTED);
	for (size_t i = 0; i < LAUNCHERS; i++)
		CHECK_EQUAL(launchers[i].call(launchers[i].linked, stream),
			    CUDA_ERROR_NOT_PERMITTED);
}
