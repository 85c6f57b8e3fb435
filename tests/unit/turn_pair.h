/* Shared by tests of turns at given moments: two slices, of which the first has the turn. */
#pragma once

#include "turn_world.h"

#undef CHANGE_NS /* the device's; the library has one of its own */
#include "turn_internal.h"

static struct turn *first, *second; /* of two slices; the first has the turn */

static struct turn *join_one(struct actor *actor)
{
	join(actor);
	return &actor->turn;
}

/* One of the two that has not died. */
static struct turn *living(void)
{
	return first->file.file ? first : second;
}

UNUSED static struct vgpu_turns_header *header(void)
{
	return &living()->file.file->header;
}

static struct grant word(void)
{
	return grant_see(living(), time_ns);
}

/* The begin of the turn that the word has, which is told in units of a microsecond. */
UNUSED static void assert_begins(uint64_t at_ns)
{
	assert_in_range(word().begin_ns, at_ns - 2 * US, at_ns + 2 * US);
}

/* Both slices want the GPU, and the first begins its turn. */
UNUSED static void pair_begin(void)
{
	first = join_one(busy(50, 100, MS));
	second = join_one(busy(50, 100, MS));
	turn_ask(first, time_ns);
	turn_ask(second, time_ns);
	time_ns += 100 * US;
	assert_int_equal(turn_ask(first, time_ns).kind, TURN_MINE);
	assert_int_equal(word().holder, first->file.slice);
	assert_true(word().is_shared);
}

UNUSED static int pair_make(void **state)
{
	if (world_make(state))
		return -1;
	pair_begin();
	return 0;
}

#undef UNIT_SET_UP
#define UNIT_SET_UP pair_make
