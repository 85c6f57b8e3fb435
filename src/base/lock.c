/*
 * The three-state futex mutex: the release needs no system call if no thread waits. Waiters mark
 * the word 2 before they sleep, and take it as 2, because others may sleep still.
 */
#include "lock.h"

#include "assertion.h"
#include "lock_order.h"
#include "sys.h"

#define SPINS 100 /* about 1 us: the work under the lock takes less */

void lock_init(struct lock *lock)
{
	__atomic_store_n(&lock->word, 0, __ATOMIC_RELAXED);
	lock_order_forget(lock);
}

bool lock_try(struct lock *lock)
{
	uint32_t expected = 0;
	/* Acquire pairs with the release in lock_release. */
	bool taken = __atomic_compare_exchange_n(&lock->word, &expected, 1, false, __ATOMIC_ACQUIRE,
						 __ATOMIC_RELAXED);

	if (taken)
		lock_order_taken(lock);
	return taken;
}

void lock_acquire(struct lock *lock)
{
	lock_order_wait(lock, true);
	for (int i = 0; i < SPINS; i++)
		if (lock_try(lock))
			return;
	while (__atomic_exchange_n(&lock->word, 2, __ATOMIC_ACQUIRE) != 0)
		sys_futex_wait(&lock->word, 2, UINT64_MAX);
	lock_order_taken(lock);
}

void lock_release(struct lock *lock)
{
	ASSERT(__atomic_load_n(&lock->word, __ATOMIC_RELAXED) != 0);
	lock_order_released(lock);
	if (__atomic_exchange_n(&lock->word, 0, __ATOMIC_RELEASE) == 2)
		sys_futex_wake(&lock->word, 1);
}
