/*
 * The order of locks, as it is at run time: in the fault-injection build alone. Elsewhere these
 * functions are nothing.
 *
 * A thread that waits for a lock while it holds others says that each of them comes before it. If
 * an earlier wait, of any thread, has said the opposite, directly or by other locks between, two
 * threads could wait for each other: the process prints which locks these are, and aborts. So a
 * test finds a wrong order although no deadlock happens in it. A lock that is only tried comes
 * before what is waited for under it, and after nothing.
 *
 * Locks are told apart by their addresses.
 */
#pragma once

#include <stdbool.h>

#ifdef VGPU_FAULTS

/* Before the calling thread waits for the lock, or may have to. for_ever: until it has it; else a
 * thread that holds the lock may wait for it once more. */
void lock_order_wait(const void *lock, bool for_ever);
/* The calling thread has it; and has it no more. */
void lock_order_taken(const void *lock);
void lock_order_released(const void *lock);
/* The lock is a new one, and nobody holds it. */
void lock_order_forget(const void *lock);

#else

static inline void lock_order_wait(const void *lock, bool for_ever)
{
	(void)lock;
	(void)for_ever;
}

static inline void lock_order_taken(const void *lock)
{
	(void)lock;
}

static inline void lock_order_released(const void *lock)
{
	(void)lock;
}

static inline void lock_order_forget(const void *lock)
{
	(void)lock;
}

#endif
