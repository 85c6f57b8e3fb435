/*
 * own.lock, the one lock of a region: a futex word in the file, for all processes that map it.
 *
 *     bits 0-10    1 + the holder's slot; 0 for a free lock
 *     bits 11-30   the low bits of own.slots[slot].claims while the holder has the slot
 *     bit 31       VGPU_LOCK_WAITERS: a thread may sleep, so the release wakes one
 *
 * How it works. A free lock is taken by one compare-and-swap, and released by one exchange; without
 * contention that is all. Otherwise a thread spins for longer than a charge takes, sets the
 * waiters' bit, and sleeps for CHECK_NS at most. After that it asks the kernel whether the holder's
 * slot still has a living process. If not, the thread replaces the dead holder's word by its own.
 * So it takes the lock over, and computes all that the lock protects again from the slots that are
 * not over (repair()). A living holder keeps the lock; after REGION_LOCK_PATIENCE_NS the thread
 * gives up.
 *
 * Why a takeover hits only a dead holder. A word names a slot *and* its claim. If the slot's byte
 * is unlocked, this claim is over for good. A process keeps its byte until its death, and releases
 * the lock before it unlocks the byte. The next owner of the slot counts one claim more before it
 * touches the word. So between the question and the swap, the word can only change to other values
 * than the one that was asked about. If it has changed, the swap fails. (It could after exactly
 * 2^20 claims of one slot within that instant.) For the same reason a new owner of a slot need not
 * wait. A word with its own slot and another claim is a dead holder's.
 *
 * Threads of one process share a slot and so a word. The word excludes them from each other as it
 * excludes other processes, and for each of them the holder lives.
 *
 * If a process is killed:
 *
 *     while it holds the lock            a waiter takes the lock over within CHECK_NS, or the next
 *                                        owner of the slot does so at once
 *     after the release, not yet waking  the waiters sleep for the rest of their CHECK_NS at most,
 *                                        and find the word free: no waiter relies on a wake-up
 *     after the wake-up, not yet taking  the same
 *     in repair()                        the next takeover repairs again: all can be repeated
 *     after setting the waiters' bit     one wake-up is superfluous
 *
 * In builds with expensive assertions, each holder checks the region as region_check does, when it
 * takes the lock and when it releases the lock. If the region was damaged before, it may stay so.
 *
 * What it is not: fair, recursive, or safe against processes that write the word for other ends. A
 * signal handler that charges while its own thread holds the lock gets -ETIMEDOUT.
 */
#include <errno.h>

#include "assertion.h"
#include "clock.h"
#include "lock_order.h"
#include "region_internal.h"
#include "sys.h"
#include "trace.h"

#define SLOT_BITS  11
#define SLOT_MASK  VGPU_LOCK_SLOT_MASK
#define CLAIM_MASK (~VGPU_LOCK_WAITERS & ~SLOT_MASK)

#define SPIN_LEAST 4 /* pauses before the first look, some 100 ns: a charge takes 20 */
#define SPIN_MOST  8 /* and before the last one */
#define CHECK_NS   (5 * NS_PER_MS) /* how long to sleep before asking after the holder */

#ifdef VGPU_FAULTS
void (*region_step_hook)(enum region_step step);
bool region_is_damaged;
#endif

_Static_assert(VGPU_SLOTS_MAX < 1 << SLOT_BITS, "a slot fits its bits of the word");
_Static_assert(SLOT_MASK == (1u << SLOT_BITS) - 1, "layout");

uint32_t region_owner_word(const struct vgpu_region_file *file, unsigned slot)
{
	uint32_t claim = (uint32_t)REGION_LOAD(file->own.slots[slot].claims);

	return (slot + 1) | (claim << SLOT_BITS & CLAIM_MASK);
}

/* Acquire pairs with the release in region_unlock. */
static bool swap(uint32_t *word, uint32_t expected, uint32_t desired)
{
	return __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

static void pause_cpu(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Looks rarely: each look takes the word's cache line from the holder, which needs it next. A
 * thread that must wait longer goes to sleep: with eight processes that do nothing else, more locks
 * are taken in all. */
static bool spin(uint32_t *word, uint32_t owner)
{
	for (int pauses = SPIN_LEAST; pauses <= SPIN_MOST; pauses *= 2) {
		for (int i = 0; i < pauses; i++)
			pause_cpu();
		if (REGION_LOAD(*word) == 0 && swap(word, 0, owner))
			return true;
	}
	return false;
}

/* Whether an earlier owner of our slot left the word. */
static bool is_predecessor(const struct region *region, uint32_t word)
{
	return (word & SLOT_MASK) == (region->owner & SLOT_MASK) &&
	       ((word ^ region->owner) & CLAIM_MASK) != 0;
}

bool region_holder_lives(struct region *region, uint32_t word)
{
	/* A slot of 0 - 1, or after the last one, has no process, and so is dead. */
	return !is_predecessor(region, word) && region_slot_alive(region, (word & SLOT_MASK) - 1);
}

static void repair(struct region *region)
{
	uint64_t from_ns = trace_wants(TRACE_REGION) ? clock_now_ns() : 0;
	int cleared;

	region_share_repair_locked(region->file); /* first: its figures are those of that moment */
	region_finish_exits_locked(region->file);
	cleared = region_clear_dead_locked(region);
	region_compute_totals_locked(region->file);
	if (trace_wants(TRACE_REGION))
		trace_add(TRACE_REPAIRED, -1, cleared, (int64_t)(clock_now_ns() - from_ns));
}

/* Takes the lock over from the dead holder that left the word. False: another thread was first. */
static bool take_over(struct region *region, uint32_t word)
{
	struct vgpu_region_own *own = &region->file->own;

	region_step(lock_found_dead);
	if (!swap(&own->lock, word, region->owner | VGPU_LOCK_WAITERS))
		return false;
	region_step(lock_taken_over);
	if (trace_wants(TRACE_REGION))
		trace_add(TRACE_TAKEN_OVER, -1, (int64_t)(word & SLOT_MASK) - 1, 0);
	REGION_STORE(own->takeovers, own->takeovers + 1);
	repair(region);
	return true;
}

/*
 * Tries to take the lock once. If it is held, sets the waiters' bit, sleeps for CHECK_NS at most,
 * and takes over from a dead owner. Returns whether it has the lock. A thread that has slept takes
 * the lock with the waiters' bit, because others may still sleep.
 */
static bool take_or_wait(struct region *region)
{
	uint32_t *word = &region->file->own.lock;
	uint32_t seen = REGION_LOAD(*word);
	int woken;

	if (seen == 0)
		return swap(word, 0, region->owner | VGPU_LOCK_WAITERS);
	if (is_predecessor(region, seen))
		return take_over(region, seen);
	if (!(seen & VGPU_LOCK_WAITERS) && !swap(word, seen, seen | VGPU_LOCK_WAITERS))
		return false;
	seen |= VGPU_LOCK_WAITERS;
	region_step(lock_marked);
	woken = sys_futex_wait(word, seen, CHECK_NS);
	region_step(lock_waited);
	/* -EINTR counts as well as -ETIMEDOUT: a profiler's signals may interrupt each wait. */
	if (woken == 0 || woken == -EAGAIN || region_holder_lives(region, seen))
		return false;
	return take_over(region, seen);
}

static int lock_slowly(struct region *region, uint64_t patience_ns)
{
	uint64_t deadline_ns;

	if (spin(&region->file->own.lock, region->owner))
		return 0;
	deadline_ns = clock_now_ns() + patience_ns;
	while (clock_now_ns() < deadline_ns) {
		int lost = region_watch(region);

		if (lost || !region_is_as_opened(region)) /* nothing is taken from such a holder */
			return lost ? lost : -EUCLEAN;
		if (take_or_wait(region))
			return 0;
	}
	return -ETIMEDOUT;
}

/* The file is no region any more, so that the lock, if it was taken, means nothing. */
__attribute__((noinline, cold)) static int found_lost(struct region *region, bool locked)
{
	if (locked)
		region_unlock(region);
	return region_mark_lost(region, -EUCLEAN);
}

int region_lock_within(struct region *region, uint64_t patience_ns)
{
	int error = 0;

	lock_order_wait(&region->file->own.lock, false);
	if (!swap(&region->file->own.lock, 0, region->owner))
		error = lock_slowly(region, patience_ns);
	if (!error)
		lock_order_taken(&region->file->own.lock);
	if (!region_is_as_opened(region))
		return found_lost(region, !error);
	if (!error && ASSERTION_LEVEL >= 3)
		region->was_valid = !region_is_damaged && region_is_valid_locked(region);
	if (!error)
		region_step(lock_taken);
	return error;
}

int region_lock(struct region *region)
{
	return region_lock_within(region, REGION_LOCK_PATIENCE_NS);
}

int region_cannot_lock(const struct region *region, int error, struct fault *fault)
{
	if (error == -ESTALE || error == -EUCLEAN)
		return region_why_lost(region, fault);
	if (error == -ETIMEDOUT)
		return fault_set(fault, error,
				 "a living process keeps region %s locked: is it stopped? Continue "
				 "or end it",
				 region->path);
	return fault_set(fault, error, "cannot lock region %s: error %d", region->path, -error);
}

void region_unlock(struct region *region)
{
	uint32_t *word = &region->file->own.lock, was;

	ASSERT_EXPENSIVE(!region->was_valid || region_is_valid_locked(region));
	if (ASSERTION_LEVEL >= 3)
		region->was_valid = false;
	region_step(lock_releasing);
	lock_order_released(word);
	was = __atomic_exchange_n(word, 0, __ATOMIC_RELEASE); /* pairs with swap() */
	region_step(lock_released);
	if (was & VGPU_LOCK_WAITERS)
		sys_futex_wake(word, 1);
}
