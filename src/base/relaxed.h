/* Relaxed atomic access to words. These accesses have no order among each other. Code that needs an
 * order uses the compiler's builtins. */
#pragma once

#define RELAXED_LOAD(field)         __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define RELAXED_STORE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELAXED)
/* The new value. */
#define RELAXED_ADD(field, value) __atomic_add_fetch(&(field), value, __ATOMIC_RELAXED)
#define RELAXED_SUB(field, value) __atomic_sub_fetch(&(field), value, __ATOMIC_RELAXED)
/* Stores `new` if the field has the value `old`, and returns true. Otherwise returns false, and
 * sets `old` to the field's value. */
#define RELAXED_CAS(field, old, new)                                                \
	__atomic_compare_exchange_n(&(field), &(old), new, false, __ATOMIC_RELAXED, \
				    __ATOMIC_RELAXED)
