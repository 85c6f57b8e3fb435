/*
 * A lock between the threads of one process: a futex word. It is no pthread mutex for two reasons.
 * Before glibc 2.34, libpthread is a library of its own. And a forked child must be able to free
 * the lock (lock_init) although a thread of its parent held it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct lock {
	uint32_t word; /* 0 free, 1 held, 2 held and waited for */
};

#define LOCK_INIT \
	{         \
		0 \
	}

void lock_init(struct lock *lock); /* makes the lock free, also one that is held */
void lock_acquire(struct lock *lock);
bool lock_try(struct lock *lock); /* false: a thread holds the lock */
void lock_release(struct lock *lock);
