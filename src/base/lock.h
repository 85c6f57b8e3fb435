/*
 * A lock between the threads of one process: a futex word. No pthread mutex, because libpthread is
 * a library of its own before glibc 2.34, and because a forked child must be able to start over
 * (lock_init) whatever its parent's threads held.
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

void lock_init(struct lock *lock); /* free, whatever it was */
void lock_acquire(struct lock *lock);
bool lock_try(struct lock *lock); /* false: somebody has it */
void lock_release(struct lock *lock);
