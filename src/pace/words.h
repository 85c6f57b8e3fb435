/* Inside pace/: words that any thread reads and writes, each for itself, without an order among
 * them. Where there is one, the builtins stand in the code. */
#pragma once

#define LOAD(field)         __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define STORE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELAXED)
#define ADD(field, value)   __atomic_add_fetch(&(field), value, __ATOMIC_RELAXED)
/* Whether it was `old`, which is what it is otherwise. */
#define SWAP(field, old, new)                                                       \
	__atomic_compare_exchange_n(&(field), &(old), new, false, __ATOMIC_RELAXED, \
				    __ATOMIC_RELAXED)
