#include "lease.h"

#include "clock.h"
#include "pace.h"
#include "window.h"
#include "words.h"

#define LEASE_NS     (32 * NS_PER_US) /* of costs: next to nothing in a bucket */
#define LEASE_LEAST  8                /* launches; and */
#define LEASE_SPREAD 8                /* at most so many more */
#define LEASE_OLD_NS (1 * NS_PER_MS)  /* then nobody knows when they were */

static PACE_OF_THREAD struct lease {
	struct meter *meter;    /* of the device that they are for */
	const void *context;    /* on it */
	uint64_t taken_at_ns;   /* clock_wall_ns() */
	uint64_t left_ns;       /* that may be charged yet; none: there is no lease */
	uint64_t charged_ns;    /* what it has been used for: costs, not trimmed */
	uint32_t left, charged; /* the same in launches */
} lease;

/* As in pace_is_open, which has counted the launch. */
static bool words_let_go(void)
{
	const int32_t *recent_kernel = __atomic_load_n(&pace_words.recent_leased, __ATOMIC_ACQUIRE);

	return pace_left >= 0 && LOAD(*recent_kernel) == PACE_RECENT &&
	       LOAD(*LOAD(pace_words.status)) != VGPU_SLOT_SUSPENDED;
}

bool pace_lease(const void *context, const struct cost_of *what)
{
	const struct cost *cost;
	uint64_t ns;

	if (!lease.left || (context && context != lease.context) || !words_let_go())
		return false;
	cost = cost_find(what);
	ns = cost_ns(cost);
	if (ns > lease.left_ns || cost_is_new(cost)) /* what is not known is more than any */
		return false;
	lease.left--;
	lease.charged++;
	lease.left_ns -= ns;
	lease.charged_ns += ns;
	return true;
}

/* Where something is late, or waits for launches, each of them counts. */
void lease_take(struct meter *meter, const void *context, uint64_t now_ns)
{
	if (LOAD(meter->stuck) > 0 || !bucket_is_open(meter->bucket))
		return;
	lease = (struct lease){
		.meter = meter,
		.context = context,
		.taken_at_ns = now_ns,
		.left_ns = LEASE_NS,
		.left = LEASE_LEAST +
			(uint32_t)((now_ns * 0x9e3779b97f4a7c15u >> 32) * LEASE_SPREAD >> 32),
	};
}

void lease_return(void)
{
	struct lease used = lease;
	uint64_t now_ns;

	lease.left = lease.charged = 0;
	if (!used.charged)
		return;
	now_ns = clock_wall_ns();
	if (now_ns >= used.taken_at_ns && now_ns - used.taken_at_ns < LEASE_OLD_NS)
		now_ns = used.taken_at_ns;
	meter_charge(used.meter, window_trim(used.meter, used.charged_ns), now_ns);
	ADD(used.meter->window.launches, used.charged);
}

void lease_forget(void)
{
	lease = (struct lease){.left = 0};
}
