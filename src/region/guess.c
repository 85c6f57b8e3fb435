/*
 * Charges for contexts that are guesses.
 *
 * How it works. The first contexts of a slice are charged more than they take, as the cost of a
 * context is not known yet. A process corrects its charge at its first allocation
 * (quota/context.c). Until then the slice seems to hold more than it does. So a word of each slot
 * says for which devices its charge is such a guess, and since when. A process that finds no room
 * waits for the others' guesses. If a process makes a context and then allocates nothing, others
 * wait for it no longer than REGION_GUESS_PATIENCE_NS.
 *
 * What always holds. Only threads of the slot's process write the word. It says "guess" before the
 * charge is made and until the charge is corrected. No process waits for longer than
 * REGION_GUESS_PATIENCE_NS, whatever the word says.
 *
 * No lock. If the process is killed on any line, its slot is that of a dead process. No process
 * waits for it, and the next process that claims the slot clears the word.
 */
#include "region_internal.h"
#include "sys.h"

#define DEVICE_BITS 16

_Static_assert(VGPU_DEVICES_MAX <= DEVICE_BITS, "a bit for each device");

static uint64_t *own_word(struct region *region, unsigned device)
{
	if (region->slot < 0 || device >= VGPU_DEVICES_MAX || region_watch(region) != 0)
		return NULL;
	return &region->file->own.slots[region->slot].guess;
}

static uint64_t now_ms(void)
{
	return clock_coarse_ns() / NS_PER_MS;
}

void region_guess_begin(struct region *region, unsigned device)
{
	uint64_t *word = own_word(region, device), was, devices;

	if (!word)
		return;
	was = REGION_LOAD(*word);
	do
		devices = was & ((1u << DEVICE_BITS) - 1);
	while (!__atomic_compare_exchange_n(word, &was,
					    now_ms() << DEVICE_BITS | devices | 1u << device, false,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

void region_guess_end(struct region *region, unsigned device)
{
	uint64_t *word = own_word(region, device);

	if (word && REGION_LOAD(*word) & 1u << device)
		__atomic_fetch_and(word, ~((uint64_t)1 << device), __ATOMIC_RELEASE);
}

static bool is_fresh(uint64_t word, unsigned device)
{
	return word & 1u << device &&
	       now_ms() - (word >> DEVICE_BITS) < REGION_GUESS_PATIENCE_NS / NS_PER_MS;
}

static bool others_guess(struct region *region, unsigned device)
{
	for (int slot = -1; (slot = region_next_slot(region->file, slot)) >= 0;)
		if (slot != region->slot &&
		    is_fresh(REGION_LOAD(region->file->own.slots[slot].guess), device) &&
		    region_slot_alive(region, (unsigned)slot))
			return true;
	return false;
}

bool region_wait_guesses(struct region *region, unsigned device)
{
	uint64_t deadline_ns;

	if (device >= VGPU_DEVICES_MAX || region_watch(region) != 0 ||
	    !others_guess(region, device))
		return false;
	deadline_ns = clock_now_ns() + REGION_GUESS_PATIENCE_NS;
	do
		sys_sleep_ns(NS_PER_MS);
	while (region_watch(region) == 0 && others_guess(region, device) &&
	       clock_now_ns() < deadline_ns);
	return true;
}
