/* Shared by the tests of leases: a short kernel, and a process that has launched it for a
 * while. */
#pragma once

#include "pace_fake.h"

#define SHORT_NS ((uint64_t)2000)

static const struct kernel short_one = {.function = 1, .ns = SHORT_NS};

/* Joins, and launches the short kernel until its cost is known. */
static void joined_and_known(unsigned cores_pct)
{
	joined(cores_pct);
	for (unsigned i = 0; i < 20000; i++)
		launch(&short_one);
	fake.leased = 0;
}
