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

/* A record of a table. Each table uses at most one member of a union. */
struct entry {
	uint64_t key;
	union {
		uint64_t context; /* the CUcontext that it goes with */
		uint64_t handle;  /* mapping.c, binding.c: of the memory */
		uint64_t look_up; /* variable.c: the number of the last one */
	};
	union {
		uint64_t amount;     /* bytes */
		uint64_t size_bytes; /* mapping.c */
		uint64_t owner;      /* binding.c: the multicast object or the array */
		uint64_t count; /* blocks.c, variable.c: allocations or variables in a granule */
	};
	uint16_t device; /* CUDA ordinal */
	bool managed : 1;
	bool shared : 1;   /* holding.c: takes a part of a granule */
	bool reused : 1;   /* blocks.c: another allocation has the address of the mark */
	bool exported : 1; /* holding.c: other processes may refer to it */
	union {
		uint32_t references;    /* holding.c */
		uint32_t memory_serial; /* mapping.c, binding.c: the memory's `serial` */
		uint32_t first_granule; /* moved.c: of the range, from the allocation's start */
		uint32_t launched;      /* graph.c: trims before the last launch, and 1 */
	};
	uint32_t pending; /* holding.c: of `references`, those that calls make or end */
	uint32_t serial;  /* holding.c, mapping.c, binding.c, moved.c */
};

_Static_assert(sizeof(struct entry) == 40, "a table may have millions of entries");

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
