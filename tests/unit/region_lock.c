/* The lock: taken over from the dead at once, and from the living never. */
#include <pthread.h>
#include <sys/syscall.h>

#include "region_fixture.h"
#include "region_internal.h"

/* Of this process, which has slot 0. */
static struct region region;

static int ours_make(void **state)
{
	if (place_make(state))
		return -1;
	region = (struct region)REGION_CLOSED;
	return open_claimed(here.path, &one_gib, &region);
}

static int ours_remove(void **state)
{
	region_close(&region);
	return place_remove(state);
}

#undef UNIT_SET_UP
#undef UNIT_TEAR_DOWN
#define UNIT_SET_UP    ours_make
#define UNIT_TEAR_DOWN ours_remove

static void charge_one(void)
{
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 1, 0), 0);
}

/* The lock was taken from a dead process so often, and what it protects is whole. */
static void assert_takeovers(unsigned count, uint64_t used_bytes)
{
	assert_int_equal(region.file->own.takeovers, count);
	assert_int_equal(region_used(&region, 0), used_bytes);
	assert_int_equal(count_wrong(&region), 0);
}

/* -- a child that stops at a step ------------------------------------------------------------- */

struct victim {
	enum region_step step;
	int signal;
	uint64_t ready;
};

static struct victim *victim; /* in shared memory */

static void signal_at_step(enum region_step step)
{
	if (step != victim->step || !FLAG_READ(victim->ready))
		return;
	FLAG_SET(victim->ready);
	region_step_hook = NULL;
	raise(victim->signal);
}

static void charge_until_signal(void *arg)
{
	struct region own = REGION_CLOSED;

	(void)arg;
	CHECK(open_claimed(here.path, &one_gib, &own) == 0);
	CHECK(region_charge(&own, 0, REGION_DATA, 30, 0) == 0);
	FLAG_SET(victim->ready);
	region_step_hook = signal_at_step;
	if (victim->step == REGION_STEP_exit_half)
		region_begin_exit(&own);
	else
		CHECK(region_charge(&own, 0, REGION_DATA, 5, 0) == 0);
	for (;;)
		pause();
}

/* A child with 30 bytes charges 5 more, or exits. Returns once it has been killed, or is stopped,
 * at the step. */
static pid_t spawn_victim(enum region_step step, int signal)
{
	pid_t pid;
	int status;

	victim = victim ? victim : shared_memory(sizeof(*victim));
	*victim = (struct victim){step, signal, 0};
	pid = spawn(charge_until_signal, NULL);
	waitpid(pid, &status, WUNTRACED);
	assert_true(signal == SIGSTOP ? WIFSTOPPED(status) : WIFSIGNALED(status));
	if (WIFSIGNALED(status))
		see_off(pid);
	return pid;
}

/* -- the dead --------------------------------------------------------------------------------- */

static unsigned futex_calls;

static long count_futex(long number)
{
	futex_calls += number == SYS_futex;
	return 0;
}

UNIT_TEST(test_dead_holder)
{
	spawn_victim(REGION_STEP_raise_used, SIGKILL);
	assert_int_equal(region_used(&region, 0), 35); /* half of a charge */
	futex_calls = 0;
	sys_fault = count_futex;
	charge_one();
	sys_fault = NULL;
	assert_in_range(futex_calls, 1, 3); /* a nap or two, of 5 ms each, and a wake-up */
	assert_takeovers(1, 1);
	assert_int_equal(region_living(&region), 1);
}

/* The holder had begun to exit, and is dying still: the rest of its slot is emptied. */
UNIT_TEST(test_dead_holder_in_exit)
{
	const struct vgpu_hami_slot *slot = &region.file->hami.slots[1];

	spawn_victim(REGION_STEP_exit_half, SIGKILL);
	region.file->own.slots[1].pid_namespace++; /* whose processes may be dying for some time */
	assert_int_not_equal(slot->pid, 0);
	charge_one();
	assert_int_equal(slot->pid, 0);
	assert_int_equal(slot->status, VGPU_SLOT_FREE);
	assert_int_not_equal(region.file->own.slots[1].exiting_pid, 0);
	assert_takeovers(1, 31);
}

static unsigned lines_about_the_dead;

static void count_line(void *arg, const char *line)
{
	lines_about_the_dead += strstr(line, arg) != NULL;
}

/* The check says that a dead process held the lock, and nothing else. */
static void assert_check_says(struct region *checked, unsigned slot)
{
	char words[64];

	snprintf(words, sizeof(words), "a dead process, of slot %u, holds the lock", slot);
	lines_about_the_dead = 0;
	assert_int_equal(region_check(checked, count_line, words), 1);
	assert_int_equal(lines_about_the_dead, 1);
}

/* An onlooker finds it, too. */
UNIT_TEST(test_dead_holder_and_onlooker)
{
	struct region view = REGION_CLOSED;
	struct fault fault;

	spawn_victim(REGION_STEP_raise_used, SIGKILL);
	assert_int_equal(region_view(here.path, &view, &fault), 0);
	assert_check_says(&view, 1);
	assert_takeovers(1, 0);
	assert_int_equal(count_wrong(&view), 0);
	region_close(&view);
}

/* The check also tells of a holder that had the slot of this process before. */
UNIT_TEST(test_predecessor_and_check)
{
	region.file->own.lock = region.owner + VGPU_LOCK_SLOT_MASK + 1; /* another claim */
	assert_check_says(&region, 0);
	assert_takeovers(1, 0);
}

/* Whoever has the dead holder's slot next knows at once. */
UNIT_TEST(test_successor_does_not_wait)
{
	struct region next = REGION_CLOSED;
	struct fault fault;

	assert_int_equal(region_open(here.path, &one_gib, &next, &fault), 0);
	spawn_victim(REGION_STEP_raise_total, SIGKILL);
	region.file->hami.slots[1].status = VGPU_SLOT_FREE; /* so that it is the slot to take */
	futex_calls = 0;
	sys_fault = count_futex;
	assert_int_equal(region_claim(&next, &fault), 0);
	sys_fault = NULL;
	assert_int_equal(next.slot, 1);
	/* The one call wakes those who may sleep; waiting would have been another. */
	assert_int_equal(futex_calls, 1);
	assert_takeovers(1, 0);
	region_close(&next);
}

/*
 * A taker finds the holder dead; before it acts, somebody else has the dead one's slot, and the
 * lock under the same slot. That one lives: the lock is not taken from it.
 */
static struct region usurper;
static unsigned waits;

static void usurp(enum region_step step)
{
	if (step == REGION_STEP_lock_found_dead && usurper.slot < 0) {
		region_step_hook = NULL;
		claim(&usurper);
		assert_int_equal(region_lock(&usurper), 0);
		__atomic_or_fetch(&usurper.file->own.lock, VGPU_LOCK_WAITERS, __ATOMIC_SEQ_CST);
		region_step_hook = usurp;
	} else if (step == REGION_STEP_lock_waited && usurper.slot >= 0 && ++waits == 3) {
		region_unlock(&usurper);
	}
}

UNIT_TEST(test_successor_is_not_mistaken)
{
	spawn_victim(REGION_STEP_raise_total, SIGKILL);
	region.file->hami.slots[1].status = VGPU_SLOT_FREE;
	usurper = (struct region)REGION_CLOSED;
	region_step_hook = usurp;
	charge_one();
	region_step_hook = NULL;
	assert_int_equal(usurper.slot, 1);
	assert_int_equal(waits, 3); /* it waited for as long as the usurper had it */
	assert_takeovers(1, 1);
	region_close(&usurper);
}

static long interrupt_futex(long number)
{
	if (number != SYS_futex)
		return 0;
	futex_calls++;
	usleep(1000);
	return -EINTR;
}

/* A profiler's signals end every wait early; the dead are found all the same. */
UNIT_TEST(test_signals)
{
	spawn_victim(REGION_STEP_lock_taken, SIGKILL);
	futex_calls = 0;
	sys_fault = interrupt_futex;
	charge_one();
	sys_fault = NULL;
	assert_in_range(futex_calls, 1, 50);
	assert_takeovers(1, 1);
}

/* A word that no process can have stored is nobody's. */
UNIT_TEST(test_damaged_word)
{
	static const uint32_t words[] = {VGPU_LOCK_WAITERS, 0x7ff,      1025,
					 0x7fffffff,        0xffffffff, 0x800};

	for (unsigned i = 0; i < sizeof(words) / sizeof(*words); i++) {
		region.file->own.lock = words[i];
		charge_one();
		assert_takeovers(i + 1, i + 1);
	}
}

/* -- the living ------------------------------------------------------------------------------- */

struct parallel {
	uint64_t took_ns;
	int result;
};

static void *charge_in_thread(void *arg)
{
	struct parallel *parallel = arg;
	uint64_t start = clock_now_ns();

	parallel->result = region_charge(&region, 0, REGION_DATA, 1, 100);
	parallel->took_ns = clock_now_ns() - start;
	return NULL;
}

static void *refund_in_thread(void *arg)
{
	region_refund(&region, 0, REGION_DATA, 4);
	return arg;
}

static void *claim_in_thread(void *arg)
{
	struct fault fault = {""};

	return (void *)(intptr_t)region_claim(arg, &fault);
}

UNIT_TEST(test_stopped_holder)
{
	struct region other = REGION_CLOSED;
	struct parallel charging = {0, 1};
	pthread_t threads[3];
	void *claimed = NULL;
	struct fault fault;
	int error;
	pid_t pid;

	assert_int_equal(region_open(here.path, NULL, &other, &fault), 0);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 65, 100), 0);
	pid = spawn_victim(REGION_STEP_raise_used, SIGSTOP);
	pthread_create(&threads[0], NULL, charge_in_thread, &charging);
	pthread_create(&threads[1], NULL, refund_in_thread, NULL);
	pthread_create(&threads[2], NULL, claim_in_thread, &other);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], i == 2 ? &claimed : NULL);
	assert_int_equal(charging.result, -ETIMEDOUT);
	assert_in_range(charging.took_ns, 1990 * NS_PER_MS, LONG_MS * NS_PER_MS);
	assert_int_equal((intptr_t)claimed, -ETIMEDOUT);
	assert_int_equal(other.slot, -1);
	assert_int_equal(region.file->own.takeovers, 0);
	assert_int_equal(region_used(&region, 0), 100);
	kill(pid, SIGCONT);
	/* The refund is made by whoever of us has the lock next; the victim's charge is whole. On a
	 * busy machine, the victim goes on late. */
	for (int tries = 0; (error = region_charge(&region, 0, REGION_DATA, 5, 100)) == -ETIMEDOUT;)
		assert_true(++tries < 10);
	assert_int_equal(error, -EDQUOT);
	assert_int_equal(region_used(&region, 0), 96);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 4, 100), 0);
	assert_int_equal(region_own_usage(&region, 0).data, 65);
	assert_int_equal(count_wrong(&region), 0);
	assert_int_equal(region_claim(&other, &fault), 0);
	region_close(&other);
	kill_child(pid);
}

static void *lock_in_thread(void *arg)
{
	uint32_t word;

	if (region_lock(&region) != 0)
		return arg;
	word = region.file->own.lock;
	region_unlock(&region);
	return (void *)(uintptr_t)word;
}

/* A thread that has slept has the lock with the waiters' bit, as others may still sleep. */
UNIT_TEST(test_sleeper_wakes_others)
{
	void *word = NULL;
	pthread_t thread;

	assert_int_equal(region_lock(&region), 0);
	pthread_create(&thread, NULL, lock_in_thread, NULL);
	while (!(__atomic_load_n(&region.file->own.lock, __ATOMIC_SEQ_CST) & VGPU_LOCK_WAITERS))
		usleep(100);
	region_unlock(&region);
	pthread_join(thread, &word);
	assert_int_equal((uintptr_t)word, region.owner | VGPU_LOCK_WAITERS);
}

static uint64_t lingering;

/* Until somebody waits for the lock, and then for longer than waiters do before they ask after the
 * holder. */
static void linger(enum region_step step)
{
	const uint32_t *lock = &region.file->own.lock;

	if (step != REGION_STEP_raise_used || __atomic_exchange_n(&lingering, 1, __ATOMIC_SEQ_CST))
		return;
	while (!(__atomic_load_n(lock, __ATOMIC_SEQ_CST) & VGPU_LOCK_WAITERS))
		usleep(1000);
	usleep(60000);
}

/* A thread of our own that is slow is no dead process, though the kernel says our byte is free. */
UNIT_TEST(test_slow_sibling)
{
	struct parallel slow = {0, 1}, fast = {0, 1};
	pthread_t threads[2];

	region_step_hook = linger;
	pthread_create(&threads[0], NULL, charge_in_thread, &slow);
	assert_true(reached(&lingering, 1, LONG_MS));
	pthread_create(&threads[1], NULL, charge_in_thread, &fast);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	region_step_hook = NULL;
	assert_int_equal(slow.result, 0);
	assert_int_equal(fast.result, 0);
	assert_true(fast.took_ns > 40 * NS_PER_MS);
	assert_takeovers(0, 2);
}
