/*
 * A hash table of allocations: a 64-bit key (never 0) to a small record. The table uses open
 * addressing with linear probing. The removal of an entry closes its gap, so there are no
 * tombstones, and a table's speed depends on its present entries only. Memory comes from the
 * kernel, in powers of two, and is never malloc's. Not thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct entry {
	uint64_t key;
	uint64_t context; /* the CUcontext that it goes with */
	uint64_t amount;
	uint16_t device; /* CUDA ordinal */
	bool managed : 1;
	bool shared : 1;     /* takes a part of a granule (holding.c) */
	bool exported : 1;   /* holding.c */
	uint32_t references; /* holding.c; of a mapping or binding: the serial of its memory */
	uint32_t pending;    /* holding.c: of `references`, those that calls make or end */
	uint32_t serial;     /* holding.c, moved.c */
};

struct table {
	struct entry *entries; /* NULL while empty */
	size_t capacity;       /* a power of two */
	size_t count;
};

struct entry *table_find(struct table *table, uint64_t key); /* NULL if there is none */

/* A new entry, all zero but for the key, which must not be there; NULL when memory is out. Valid,
 * as table_find's, until the next table_add or table_remove. */
struct entry *table_add(struct table *table, uint64_t key);

void table_remove(struct table *table, struct entry *entry);

/* Removes each entry for which matches(arg, entry) is true. Each entry is looked at once. */
void table_remove_if(struct table *table, bool (*matches)(void *arg, const struct entry *entry),
		     void *arg);

void table_clear(struct table *table); /* gives the memory back */
