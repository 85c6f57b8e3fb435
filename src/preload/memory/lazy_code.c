/*
 * A table of handles without a lock. A bucket is one cache line, so that a launch looks at no more.
 * Where a bucket is full, a handle takes the place of another one. Once code was awaited for one
 * that has lost its place, it is awaited for all handles that are not in the table: with 4,096
 * places, that needs thousands of functions that were handed out.
 */
#include "lazy_code.h"

#include <stddef.h>

#include "launch.h"
#include "quota.h"

#define BUCKETS 512
#define PLACES  8 /* of a bucket */

/* Marks in a handle, as handles are aligned. */
#define AWAITED ((uintptr_t)1)
#define OLD     ((uintptr_t)2) /* when it is handed out again, it counts as new */
#define MARKS   (AWAITED | OLD)

uint32_t lazy_code_count; /* with one for `lost` */
static bool lost;         /* a handle has lost its place while its code was awaited; atomic */
static uintptr_t table[BUCKETS][PLACES] __attribute__((aligned(64))); /* atomic; 0: free */

static uint64_t hash_of(const void *handle)
{
	return launch_hash((uint64_t[]){(uintptr_t)handle, 0}, 1);
}

/* The place in the bucket that has the handle; 0 looks for a free one. NULL: there is none. */
static uintptr_t *find(uintptr_t *bucket, uintptr_t handle)
{
	for (unsigned i = 0; i < PLACES; i++)
		if ((__atomic_load_n(&bucket[i], __ATOMIC_RELAXED) & ~MARKS) == handle)
			return &bucket[i];
	return NULL;
}

static uintptr_t *place_of(const void *handle)
{
	return handle ? find(table[hash_of(handle) % BUCKETS], (uintptr_t)handle) : NULL;
}

/* The handle's place, a free one, or another handle's. */
static uintptr_t *place_for(const void *handle)
{
	uint64_t hash = hash_of(handle);
	uintptr_t *bucket = table[hash % BUCKETS];
	uintptr_t *place = find(bucket, (uintptr_t)handle);

	if (!place)
		place = find(bucket, 0);
	return place ? place : &bucket[hash / BUCKETS % PLACES];
}

static void note_lost(void)
{
	if (!__atomic_exchange_n(&lost, true, __ATOMIC_RELAXED))
		__atomic_add_fetch(&lazy_code_count, 1, __ATOMIC_RELAXED);
}

/* False: another thread has changed the place since `from` was read. */
static bool change(uintptr_t *place, uintptr_t from, uintptr_t to)
{
	if (!__atomic_compare_exchange_n(place, &from, to, false, __ATOMIC_RELAXED,
					 __ATOMIC_RELAXED))
		return false;
	if (from & AWAITED && to && (from & ~MARKS) != (to & ~MARKS))
		note_lost();
	__atomic_add_fetch(&lazy_code_count, (uint32_t)(to & AWAITED) - (uint32_t)(from & AWAITED),
			   __ATOMIC_RELAXED);
	return true;
}

bool lazy_code_is_awaited(const void *handle)
{
	const uintptr_t *place = place_of(handle);
	uintptr_t entry = place ? __atomic_load_n(place, __ATOMIC_RELAXED) : 0;

	if ((entry & ~MARKS) != (uintptr_t)handle)
		return __atomic_load_n(&lost, __ATOMIC_RELAXED);
	return entry & AWAITED;
}

bool lazy_code_handed_out(const void *handle)
{
	uintptr_t *place, before;

	if (!handle || !quota_attached())
		return false;
	do {
		place = place_for(handle);
		before = __atomic_load_n(place, __ATOMIC_RELAXED);
		if ((before & ~AWAITED) == (uintptr_t)handle)
			return false;
	} while (!change(place, before, (uintptr_t)handle | AWAITED));
	quota_expect_code();
	return true;
}

void lazy_code_taken_back(const void *handle)
{
	uintptr_t *place = place_of(handle);
	uintptr_t entry = place ? __atomic_load_n(place, __ATOMIC_RELAXED) : 0;

	if (place && (entry & ~MARKS) == (uintptr_t)handle)
		change(place, entry, 0);
}

void lazy_code_launched(const void *handle, bool accepted)
{
	uintptr_t *place, before;

	if (accepted) {
		place = place_for(handle);
		before = __atomic_load_n(place, __ATOMIC_RELAXED);
		change(place, before,
		       (before & ~MARKS) == (uintptr_t)handle ? before & ~AWAITED
							      : (uintptr_t)handle);
	}
	quota_expect_code();
}

void lazy_code_changed(const void *handle)
{
	lazy_code_taken_back(handle);
	lazy_code_handed_out(handle);
}

void lazy_code_loaded(const void *handle)
{
	lazy_code_handed_out(handle);
	if (lazy_code_is_awaited(handle))
		lazy_code_launched(handle, true);
}

void lazy_code_renew(bool load_again)
{
	uintptr_t marks = load_again ? MARKS : OLD;

	for (unsigned i = 0; i < BUCKETS * PLACES; i++) {
		uintptr_t *place = &table[i / PLACES][i % PLACES];
		uintptr_t entry = __atomic_load_n(place, __ATOMIC_RELAXED);

		if (entry)
			change(place, entry, entry | marks);
	}
}
