/*
 * How it works. Each lock that was ever taken has a number. `after[i]` has the numbers of the locks
 * that were waited for while lock i was held, directly or not. It is kept transitively closed, so
 * that one bit shows whether a new pair breaks the order. Each thread has an array of the locks
 * that it holds.
 *
 * `busy` guards the numbers and the pairs. It is a word that is spun on, as the functions here are
 * called from within locks. More locks than there are numbers, and more held than an array has
 * room for, are not checked.
 */
#ifdef VGPU_FAULTS

#include "lock_order.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sys.h"

#define LOCKS_MAX 256
#define HELD_MAX  16

struct set {
	uint64_t bits[LOCKS_MAX / 64];
};

static const void *locks[LOCKS_MAX]; /* NULL: the number is free */
static struct set after[LOCKS_MAX];
static bool busy;

static _Thread_local const void *held[HELD_MAX];
static _Thread_local unsigned held_count;

static void enter(void)
{
	while (__atomic_exchange_n(&busy, true, __ATOMIC_ACQUIRE))
		;
}

static void leave(void)
{
	__atomic_store_n(&busy, false, __ATOMIC_RELEASE);
}

static bool has(const struct set *set, int number)
{
	return set->bits[number / 64] >> number % 64 & 1;
}

static void add(struct set *set, int number)
{
	set->bits[number / 64] |= (uint64_t)1 << number % 64;
}

static void add_all(struct set *set, const struct set *more)
{
	for (unsigned i = 0; i < LOCKS_MAX / 64; i++)
		set->bits[i] |= more->bits[i];
}

/* The lock's number, or a new one; -1: there is none left. */
static int number_of(const void *lock)
{
	int unused = -1;

	for (int i = LOCKS_MAX - 1; i >= 0; i--) {
		if (locks[i] == lock)
			return i;
		if (!locks[i])
			unused = i;
	}
	if (unused >= 0)
		locks[unused] = lock;
	return unused;
}

static void fail(const void *first, const void *second)
{
	char line[160];
	int len = snprintf(line, sizeof(line),
			   "lock order: %p is waited for while %p is held, and was taken before "
			   "it at another time\n",
			   second, first);

	sys_write_line(STDERR_FILENO, line, (size_t)len);
	abort();
}

/* `first` is held, and `second` is waited for. */
static void note_pair(int first, int second)
{
	if (has(&after[first], second))
		return;
	add(&after[first], second);
	add_all(&after[first], &after[second]);
	for (int i = 0; i < LOCKS_MAX; i++)
		if (has(&after[i], first))
			add_all(&after[i], &after[first]);
}

void lock_order_wait(const void *lock, bool for_ever)
{
	int number, other;

	if (!held_count)
		return;
	enter();
	number = number_of(lock);
	for (unsigned i = 0; i < held_count && number >= 0; i++) {
		other = number_of(held[i]);
		if (other < 0 || (other == number && !for_ever))
			continue;
		if (other == number || has(&after[number], other))
			fail(held[i], lock);
		note_pair(other, number);
	}
	leave();
}

void lock_order_taken(const void *lock)
{
	if (held_count < HELD_MAX)
		held[held_count++] = lock;
}

void lock_order_released(const void *lock)
{
	for (unsigned i = held_count; i-- > 0;)
		if (held[i] == lock) {
			memmove(&held[i], &held[i + 1], (held_count - i - 1) * sizeof(*held));
			held_count--;
			return;
		}
}

void lock_order_forget(const void *lock)
{
	lock_order_released(lock);
	enter();
	for (int i = 0; i < LOCKS_MAX; i++)
		if (locks[i] == lock) {
			locks[i] = NULL;
			after[i] = (struct set){{0}};
			for (int j = 0; j < LOCKS_MAX; j++)
				after[j].bits[i / 64] &= ~((uint64_t)1 << i % 64);
		}
	leave();
}

#endif
