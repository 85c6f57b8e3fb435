/*
 * A bound for the granules that the small arrays of a context have, of which we know the sizes and
 * not the places. It is charged as it stands:
 *
 *   another array   may need a new granule, unless one has room for certain. An array of n units
 *                   certainly has room if the other arrays cannot fragment every granule: each
 *                   blocks at most its own units and a gap of n - 1 units before it. If all arrays
 *                   have the same size, a granule takes as many as fit.
 *   one less        the arrays that are left need at most one granule each
 *
 * A comparison with NVML may lower the bound. The bound's former value has no effect on later
 * allocations: it grows again whenever the driver may take a granule.
 *
 * Always: charged data of small arrays = the sum of the heaps' granules.
 */
#include "small.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "account.h"
#include "blocks.h"

#define UNIT_BYTES    ((uint64_t)64 << 10) /* all sizes are multiples of this */
#define GRANULE_UNITS (GRANULE_BYTES / UNIT_BYTES)
#define HEAPS_MAX     256 /* as many as there are contexts */

struct heap {
	uint64_t context;
	int device;
	uint64_t granules, arrays, units; /* arrays 0: the place is free */
	uint64_t alike;                   /* units of each; 0: they are not */
};

static struct heap heaps[HEAPS_MAX];

void small_forked(void)
{
	memset(heaps, 0, sizeof(heaps));
}

static struct heap *find(int device, uint64_t context)
{
	for (unsigned i = 0; i < HEAPS_MAX; i++)
		if (heaps[i].arrays && heaps[i].context == context && heaps[i].device == device)
			return &heaps[i];
	return NULL;
}

static struct heap *make(int device, uint64_t context)
{
	struct heap *heap = find(device, context);

	for (unsigned i = 0; i < HEAPS_MAX && !heap; i++)
		if (!heaps[i].arrays) {
			heap = &heaps[i];
			*heap = (struct heap){.device = device, .context = context};
		}
	return heap;
}

static uint64_t units_of(uint64_t size_bytes)
{
	return (size_bytes + UNIT_BYTES - 1) / UNIT_BYTES;
}

/* Whether one of its granules has room for certain. */
static bool has_room(const struct heap *heap, uint64_t units)
{
	if (heap->arrays && heap->alike == units)
		return heap->arrays < heap->granules * (GRANULE_UNITS / units);
	return heap->units + heap->arrays * (units - 1) <
	       heap->granules * (GRANULE_UNITS + 1 - units);
}

int small_add(int device, uint64_t context, uint64_t size_bytes)
{
	uint64_t units = units_of(size_bytes);
	struct heap *heap = make(device, context);
	bool fits;
	int error;

	if (!heap)
		return -EDQUOT;
	fits = has_room(heap, units);
	error = fits ? 0 : account_charge(device, GRANULE_BYTES);
	if (error)
		return error;
	if (!heap->arrays)
		heap->alike = units;
	else if (heap->alike != units)
		heap->alike = 0;
	heap->granules += fits ? 0 : 1;
	heap->units += units;
	heap->arrays++;
	return 0;
}

static void give_back(struct heap *heap, uint64_t granules)
{
	heap->granules -= granules;
	account_lower(REGION_DATA, heap->device, granules * GRANULE_BYTES);
}

void small_remove(int device, uint64_t context, uint64_t size_bytes)
{
	struct heap *heap = find(device, context);

	if (!heap)
		return;
	heap->units -= units_of(size_bytes);
	heap->arrays--;
	if (heap->granules > heap->arrays)
		give_back(heap, heap->granules - heap->arrays);
}

static uint64_t doubt(const struct heap *heap)
{
	uint64_t least = (heap->units + GRANULE_UNITS - 1) / GRANULE_UNITS;

	return heap->arrays && heap->granules > least ? heap->granules - least : 0;
}

uint64_t small_doubt(int device)
{
	uint64_t granules = 0;

	for (unsigned i = 0; i < HEAPS_MAX; i++)
		if (heaps[i].device == device)
			granules += doubt(&heaps[i]);
	return granules * GRANULE_BYTES;
}

void small_lower(int device, uint64_t bytes)
{
	uint64_t granules = bytes / GRANULE_BYTES, less;

	for (unsigned i = 0; i < HEAPS_MAX; i++) {
		if (heaps[i].device != device)
			continue;
		less = doubt(&heaps[i]);
		less = less < granules ? less : granules;
		give_back(&heaps[i], less);
		granules -= less;
	}
}
