/*
 * Tests of calls that are parked in the driver, as rows of a table. A row names a call and says
 * what it takes. It makes two tests. In the first the call is parked before the driver does
 * anything, and in the second after the driver has done everything.
 *
 *     PARKED("create", "cuMemCreate@1", .make = create_it, .undo = release_it, TAKES(64))
 *
 * Meanwhile another process of the slice takes a half of the rest of the quota, and another thread
 * the other half. Both must get what there is, and then be refused a granule. When the call has
 * returned, the ledger has changed by what the row says, and the device, too. At no moment the
 * device holds more than the quota.
 */
#pragma once

#include "sharing_fixture.h"

struct parked_row {
	const char *name;
	const char *call;     /* a function that the driver has, and the number of its call */
	bool done;            /* the call is parked when the driver has done it */
	CUdevice device;      /* whose figures are checked, and which is filled */
	const char *env[4];   /* names and values, set before CUDA starts */
	bool sibling;         /* there is one more process of the slice, `other` */
	const char *outsider; /* the memory limit of a process of another slice, `other`; or NULL */
	void (*prepare)(void);   /* all of these may be NULL, except `make` */
	CUresult (*make)(void);  /* in a thread of its own */
	void (*meanwhile)(void); /* what another thread does first, while the call is parked */
	void (*undo)(void);      /* then nothing is left of what prepare and make did */
	CUresult result;
	/* MiB by which the device's figure and the ledger change, and MiB that are charged while
	 * the driver has the call, or more if the charge is of a pool. Then some is charged ahead.
	 */
	int64_t takes, charges, reserves;
	bool is_pool;
	/* MiB of the quota that the others leave. The call is charged for them after the driver has
	 * done it. */
	int64_t leaves;
	/* What the call gives back, the others may get before it returns: the library finds it
	 * freed, or frees it itself. */
	bool found;
	bool later; /* only a comparison finds what the call gave back */
	/* After the call, a pool has memory that nothing uses. The library takes such memory back
	 * before it refuses anything, so the others ask for no more than there is. */
	bool unused;
	/* MiB that the device may hold beyond the quota for a moment: code, whose size is known
	 * when the driver has loaded it. */
	int64_t beyond;
};

/* clang-format off */
#define PARKED(row, function, ...)                                   \
	{.name = row "_before", .call = function, __VA_ARGS__},        \
	{.name = row "_after", .call = function, .done = true, __VA_ARGS__}

/* The call takes so many MiB, which are reserved before; or gives them back afterwards. */
#define TAKES(mib) .takes = (mib), .charges = (mib), .reserves = (mib)
#define GIVES(mib) .takes = -(mib), .charges = -(mib)
/* clang-format on */

void parked_play(const struct parked_row *row);

/* Waits until a comparison with NVML is due, and has it made. */
void parked_compare(void);

extern struct member other; /* of this slice or of another, if the row asks for one */
