/*
 * A granule that is divided into small allocations, and the index of all such granules of a heap.
 *
 * A granule of 2 MiB is 4096 units of 512 bytes. A unit has two bits: taken, and last of its
 * allocation. That is 1 KiB for up to 4096 allocations, without any other record of them.
 *
 * `bound` is at least the longest free run. page_take leaves it as it is, page_give raises it, and
 * only a search that fails has seen every run, and makes it exact. So at most one search of a page
 * fails for each allocation that was freed.
 *
 * All functions are called under the memory lock. Only page_index_add can fail, for lack of memory.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

/* The first unit from `from` on whose bit is `set`; PAGE_UNITS if none. */
static unsigned bits_next(const uint64_t *words, unsigned from, bool set)
{
	for (unsigned i = from / 64, shift = from % 64; i < PAGE_WORDS; i++, shift = 0) {
		uint64_t word = (set ? words[i] : ~words[i]) >> shift << shift;

		if (word)
			return i * 64 + (unsigned)__builtin_ctzll(word);
	}
	return PAGE_UNITS;
}

/* The unit after the last unit below `before` whose bit is set; 0 if there is none. */
static unsigned bits_behind_previous(const uint64_t *words, unsigned before)
{
	while (before % 64) {
		if (words[(before - 1) / 64] >> (before - 1) % 64 & 1)
			return before;
		before--;
	}
	for (unsigned i = before / 64; i-- > 0;) {
		if (words[i])
			return i * 64 + 64 - (unsigned)__builtin_clzll(words[i]);
	}
	return 0;
}

static bool bit_get(const uint64_t *words, unsigned at)
{
	return words[at / 64] >> at % 64 & 1;
}

static void bits_fill(uint64_t *words, unsigned from, unsigned count, bool set)
{
	while (count) {
		unsigned shift = from % 64, here = 64 - shift < count ? 64 - shift : count;
		uint64_t mask = (here == 64 ? ~UINT64_C(0) : (UINT64_C(1) << here) - 1) << shift;

		if (set)
			words[from / 64] |= mask;
		else
			words[from / 64] &= ~mask;
		from += here;
		count -= here;
	}
}

static void run_mark(struct page *page, unsigned unit, unsigned units)
{
	bits_fill(page->used, unit, units, true);
	bits_fill(page->last, unit + units - 1, 1, true);
}

void page_open(struct page *page, unsigned head_units)
{
	memset(page->used, 0, sizeof page->used);
	memset(page->last, 0, sizeof page->last);
	page->head_units = head_units;
	page->low = head_units;
	page->bound = PAGE_UNITS - head_units;
	if (head_units)
		run_mark(page, 0, head_units);
}

int page_take(struct page *page, unsigned units)
{
	unsigned first = bits_next(page->used, page->low, false), longest = 0;

	page->low = first;
	for (unsigned at = first; at < PAGE_UNITS;) {
		unsigned end = bits_next(page->used, at, true);

		if (end - at >= units) {
			run_mark(page, at, units);
			if (at == first)
				page->low = at + units;
			return (int)at;
		}
		if (end - at > longest)
			longest = end - at;
		at = bits_next(page->used, end, false);
	}
	page->bound = longest;
	return -1;
}

int page_start(const struct page *page, unsigned unit)
{
	if (!bit_get(page->used, unit))
		return -1;
	/* The allocation begins after the last unit of the one before, or after a free unit. */
	unsigned start = bits_behind_previous(page->last, unit);
	for (unsigned at = unit; at-- > start;) {
		if (!bit_get(page->used, at))
			return (int)at + 1;
	}
	return (int)start;
}

unsigned page_length(const struct page *page, unsigned unit)
{
	if (!bit_get(page->used, unit))
		return 0;
	if (unit && bit_get(page->used, unit - 1) && !bit_get(page->last, unit - 1))
		return 0;
	return bits_next(page->last, unit, true) - unit + 1;
}

void page_give(struct page *page, unsigned unit, unsigned units)
{
	SIM_ASSERT(page_length(page, unit) == units);
	bits_fill(page->used, unit, units, false);
	bits_fill(page->last, unit + units - 1, 1, false);
	unsigned start = bits_behind_previous(page->used, unit);
	unsigned end = bits_next(page->used, unit + units, true);
	if (end - start > page->bound)
		page->bound = end - start;
	if (unit < page->low)
		page->low = unit;
}

static void bound_set(struct page_index *index, unsigned at, unsigned bound)
{
	unsigned node = index->capacity + at;

	index->bounds[node] = (uint16_t)bound;
	while (node /= 2) {
		uint16_t left = index->bounds[2 * node], right = index->bounds[2 * node + 1];
		uint16_t larger = left > right ? left : right;

		if (index->bounds[node] == larger)
			break;
		index->bounds[node] = larger;
	}
}

static bool index_grow(struct page_index *index)
{
	unsigned capacity = index->capacity ? 2 * index->capacity : 64;
	struct page **pages = realloc(index->pages, capacity * sizeof *pages);

	if (!pages)
		return false;
	index->pages = pages;
	uint16_t *bounds = calloc(2 * (size_t)capacity, sizeof *bounds);
	if (!bounds)
		return false;
	free(index->bounds);
	index->bounds = bounds;
	index->capacity = capacity;
	for (unsigned i = 0; i < index->count; i++)
		bound_set(index, i, index->pages[i]->bound);
	return true;
}

bool page_index_add(struct page_index *index, struct page *page)
{
	if (index->count == index->capacity && !index_grow(index))
		return false;
	page->index = index->count++;
	index->pages[page->index] = page;
	bound_set(index, page->index, page->bound);
	return true;
}

void page_index_remove(struct page_index *index, struct page *page)
{
	struct page *moved = index->pages[--index->count];

	bound_set(index, index->count, 0);
	if (moved != page) {
		moved->index = page->index;
		index->pages[moved->index] = moved;
		bound_set(index, moved->index, moved->bound);
	}
	if (!index->count) {
		free(index->pages);
		free(index->bounds);
		*index = (struct page_index){0};
	}
}

void page_index_update(struct page_index *index, const struct page *page)
{
	bound_set(index, page->index, page->bound);
}

struct page *page_index_find(const struct page_index *index, unsigned units)
{
	unsigned node = 1;

	if (!index->count || index->bounds[1] < units)
		return NULL;
	while (node < index->capacity)
		node = 2 * node + (index->bounds[2 * node] < units);
	return index->pages[node - index->capacity];
}
