/* Random programs that are the same in each run: made from a seed with integers only. */
#pragma once

#include <stdint.h>
#include <stdlib.h>

static inline uint64_t chance_after(uint64_t chance)
{
	return chance * 6364136223846793005u + 1442695040888963407u;
}

static uint64_t random_state; /* the seed, before the first number */

static inline unsigned below(uint64_t most)
{
	random_state = chance_after(random_state);
	return (unsigned)((random_state >> 33) % most);
}

/* From least_ns to least_ns << doublings, each doubling with the same chance. */
static inline uint64_t between_ns(uint64_t least_ns, unsigned doublings)
{
	uint64_t from_ns = least_ns << below(doublings);

	return from_ns + from_ns * below(1000) / 1000;
}

/* The environment's number of that name. */
static inline unsigned number(const char *name, unsigned otherwise)
{
	const char *value = getenv(name);

	return value ? (unsigned)strtoul(value, NULL, 10) : otherwise;
}
