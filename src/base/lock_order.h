/*
 * A check of the order of locks at run time, in builds with fault injection. In other builds these
 * functions do nothing.
 *
 * When a thread waits for a lock B while it holds a lock A, the check records "A before B". If "B
 * before A" follows from the records of all threads, directly or through other locks, two threads
 * could wait for each other. Then the process prints the two locks and aborts. So a test finds a
 * wrong order without a deadlock. A lock that is only tried, never waited for, gets no lock before
 * it.
 *
 * The address of a lock identifies it.
 */
#pragma once

#include <stdbool.h>

#ifdef VGPU_FAULTS

/* Call it before the calling thread waits, or may wait, for the lock. for_ever: the wait has no
 * time limit. With a time limit, a thread that holds the lock may wait for the lock again. */
void lock_order_wait(const void *lock, bool for_ever);
/* Call these when the calling thread has taken the lock, and when it releases the lock. */
void lock_order_taken(const void *lock);
void lock_order_released(const void *lock);
/* Call it for a new lock at an address that another lock may have had. No thread holds it. */
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
