/*
 * A table of handles without a lock. A bucket is one cache line, so that a launch looks at no more.
 * Where a bucket is full, a handle takes the place of another one. Once a handle whose code was
 * awaited has lost its place, code is awaited for all handles that are not in the table. With 4,096
 * places, that needs thousands of functions that were handed out.
 *
 * An entry is one word:
 *
 *     bit 63           a mark
 *     bits 48 to 62    a bit for each context in which the handle was launched
 *     bits 3 to 47     the handle: an address, which is aligned, of up to 48 bits
 *     bits 0 to 2      marks
 *
 * The code of a handle is awaited while a context is alive that has no bit in the entry. A handle
 * whose code is loaded once gets all bits with its first launch, and keeps them. Fourteen contexts
 * have a bit of their own. Those after them, and green contexts, have one bit in common.
 */
#include "lazy_code.h"

#include <stddef.h>

#include "compare.h"
#include "hash.h"
#include "launch.h"
#include "quota.h"

#define BUCKETS 512
#define PLACES  8 /* of a bucket */

#define AWAITED     ((uintptr_t)1)       /* in a context that is alive */
#define OLD         ((uintptr_t)2)       /* when it is handed out again, it counts as new */
#define PER_CONTEXT ((uintptr_t)4)       /* its code is loaded in each context */
#define KERNEL      ((uintptr_t)1 << 63) /* the handle is a CUkernel for certain */
#define HANDLE      (((uintptr_t)1 << CONTEXTS_SHIFT) - 8)

#define CONTEXTS_SHIFT 48
#define CONTEXTS_ALL   ((uintptr_t)0x7fff << CONTEXTS_SHIFT)
#define CONTEXTS       14 /* with a bit of their own; the others share the bit after them */

uint32_t lazy_code_count; /* with one for `lost` */
static bool lost;         /* a handle has lost its place while its code was awaited; atomic */
static uintptr_t table[BUCKETS][PLACES] __attribute__((aligned(64))); /* atomic; 0: free */

/* The contexts that are alive, and their bits; written by the thread that makes and ends contexts,
 * atomic. */
static CUcontext contexts[CONTEXTS]; /* NULL: free */
static unsigned contexts_more;       /* how many share the last bit */
static uintptr_t alive;

/* -- the table --------------------------------------------------------------------------------- */

static uint64_t hash_of(const void *handle)
{
	return hash_word((uintptr_t)handle) >> 32;
}

static bool is_of(uintptr_t entry, const void *handle)
{
	return (entry & HANDLE) == ((uintptr_t)handle & HANDLE);
}

/* The place in the bucket that has the handle; NULL looks for a free one. NULL: there is none. */
static uintptr_t *find(uintptr_t *bucket, const void *handle)
{
	for (unsigned i = 0; i < PLACES; i++)
		if (is_of(__atomic_load_n(&bucket[i], __ATOMIC_RELAXED), handle))
			return &bucket[i];
	return NULL;
}

static uintptr_t *place_of(const void *handle)
{
	return handle ? find(table[hash_of(handle) % BUCKETS], handle) : NULL;
}

/* The handle's place, a free one, or another handle's. */
static uintptr_t *place_for(const void *handle)
{
	uint64_t hash = hash_of(handle);
	uintptr_t *bucket = table[hash % BUCKETS];
	uintptr_t *place = find(bucket, handle);

	if (!place)
		place = find(bucket, NULL);
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
	if (from & AWAITED && to && (from ^ to) & HANDLE)
		note_lost();
	__atomic_add_fetch(&lazy_code_count, (uint32_t)(to & AWAITED) - (uint32_t)(from & AWAITED),
			   __ATOMIC_RELAXED);
	return true;
}

/* -- contexts ---------------------------------------------------------------------------------- */

static uintptr_t bit(unsigned i)
{
	return (uintptr_t)1 << (CONTEXTS_SHIFT + i);
}

static unsigned index_of(CUcontext context)
{
	unsigned i = 0;

	while (i < CONTEXTS && __atomic_load_n(&contexts[i], __ATOMIC_RELAXED) != context)
		i++;
	return i;
}

static uintptr_t alive_now(void)
{
	return __atomic_load_n(&alive, __ATOMIC_RELAXED);
}

/* The bit of the stream's context. A single context, and the green contexts in it, is not asked
 * for. */
static uintptr_t bit_of(CUstream stream)
{
	uintptr_t now = alive_now();

	return now && (now & (now - 1)) == 0 ? now : bit(index_of(launch_context(stream)));
}

/* The entry with the mark AWAITED where it belongs. */
static uintptr_t marked(uintptr_t entry, uintptr_t alive_bits)
{
	return alive_bits & ~entry ? entry | AWAITED : entry & ~AWAITED;
}

/* Sets marks in all entries, removes the bits of a context, and corrects AWAITED. */
static void change_all(uintptr_t marks, uintptr_t removed)
{
	for (unsigned i = 0; i < BUCKETS * PLACES; i++) {
		uintptr_t *place = &table[i / PLACES][i % PLACES];
		uintptr_t entry = __atomic_load_n(place, __ATOMIC_RELAXED);
		uintptr_t kept = entry & PER_CONTEXT ? ~removed : UINTPTR_MAX;

		if (entry)
			change(place, entry, marked((entry | marks) & kept, alive_now()));
	}
}

void lazy_code_context_made(CUcontext context)
{
	unsigned i = index_of(NULL);

	if (i < CONTEXTS)
		__atomic_store_n(&contexts[i], context, __ATOMIC_RELAXED);
	else
		contexts_more++;
	__atomic_or_fetch(&alive, bit(i), __ATOMIC_RELAXED);
	change_all(OLD, bit(i));
}

void lazy_code_context_ended(CUcontext context)
{
	unsigned i = index_of(context);

	if (i < CONTEXTS)
		__atomic_store_n(&contexts[i], NULL, __ATOMIC_RELAXED);
	else if (contexts_more == 0 || --contexts_more)
		return; /* unknown, or the bit is still others' */
	__atomic_and_fetch(&alive, ~bit(i), __ATOMIC_RELAXED);
	change_all(0, 0);
}

/* -- handles ----------------------------------------------------------------------------------- */

bool lazy_code_is_awaited(const void *handle, CUstream stream)
{
	const uintptr_t *place = place_of(handle);
	uintptr_t entry = place ? __atomic_load_n(place, __ATOMIC_RELAXED) : 0;

	if (!is_of(entry, handle))
		return __atomic_load_n(&lost, __ATOMIC_RELAXED);
	if (!(entry & AWAITED) || !(entry & CONTEXTS_ALL))
		return entry & AWAITED;
	return !(entry & bit_of(stream));
}

bool lazy_code_is_known(const void *handle, enum lazy_code_kind *ret_kind)
{
	const uintptr_t *place = place_of(handle);
	uintptr_t entry = place ? __atomic_load_n(place, __ATOMIC_RELAXED) : 0;

	if (!is_of(entry, handle) || !handle || (entry & PER_CONTEXT && !(entry & KERNEL)))
		return false;
	*ret_kind = entry & KERNEL ? LAZY_CODE_PER_CONTEXT : LAZY_CODE_ONCE;
	return true;
}

bool lazy_code_handed_out(const void *handle, enum lazy_code_kind kind)
{
	uintptr_t entry = ((uintptr_t)handle & HANDLE) | AWAITED;
	uintptr_t *place, before;

	if (!handle || !quota_attached())
		return false;
	if (kind == LAZY_CODE_PER_CONTEXT)
		entry |= PER_CONTEXT | KERNEL;
	do {
		place = place_for(handle);
		before = __atomic_load_n(place, __ATOMIC_RELAXED);
		if (is_of(before, handle) && !(before & OLD))
			return false;
	} while (!change(place, before, entry));
	quota_expect_code();
	return true;
}

void lazy_code_taken_back(const void *handle)
{
	uintptr_t *place = place_of(handle);
	uintptr_t entry = place ? __atomic_load_n(place, __ATOMIC_RELAXED) : 0;

	if (place && is_of(entry, handle))
		change(place, entry, 0);
}

/* A handle that is not in the table may be of any kind. */
static void note_launched(const void *handle, CUstream stream)
{
	uintptr_t *place = place_for(handle);
	uintptr_t before = __atomic_load_n(place, __ATOMIC_RELAXED);
	uintptr_t entry =
		is_of(before, handle) ? before : ((uintptr_t)handle & HANDLE) | PER_CONTEXT;

	entry |= entry & PER_CONTEXT ? bit_of(stream) : CONTEXTS_ALL;
	change(place, before, marked(entry, alive_now()));
}

void lazy_code_launched(const void *handle, CUstream stream, bool accepted)
{
	if (accepted)
		note_launched(handle, stream);
	quota_expect_code();
}

void lazy_code_changed(const void *handle)
{
	lazy_code_taken_back(handle);
	lazy_code_handed_out(handle, LAZY_CODE_ONCE);
}

void lazy_code_loaded(const void *handle)
{
	lazy_code_handed_out(handle, LAZY_CODE_ONCE);
	if (lazy_code_is_awaited(handle, NULL))
		lazy_code_launched(handle, NULL, true);
}

void lazy_code_in_node(void)
{
	if (lazy_code_any())
		quota_expect_code();
}

void lazy_code_renew(void)
{
	change_all(OLD, 0);
}
