#include "lease.h"

#include "clock.h"
#include "pace.h"
#include "window.h"
#include "words.h"

#define LEASE_NS       (32 * NS_PER_US) /* of costs: next to nothing in a bucket */
#define LEASE_LAUNCHES 16
#define LEASE_GAP_NS   (8 * NS_PER_US) /* from one to the next, at most: else it is a pause */
#define LEASE_ASKS     256             /* of a thread, before it has one */

static PACE_OF_THREAD struct lease {
	struct meter *meter;    /* of the device that they are for */
	const void *context;    /* on it */
	uint64_t at_ns;         /* the last one, clock_wall_ns() */
	uint64_t left_ns;       /* that may be charged yet */
	uint32_t left;          /* launches that may be made yet; none: there is no lease */
	uint32_t charged;       /* how many were made, and */
	struct tally_many many; /* what they are */
} lease;

static PACE_OF_THREAD uint32_t asks; /* up to LEASE_ASKS */

/* As in pace_is_open, which has counted the launch. */
static bool words_let_go(void)
{
	const int32_t *recent_kernel = __atomic_load_n(&pace_words.recent_leased, __ATOMIC_ACQUIRE);

	return pace_left >= 0 && LOAD(*recent_kernel) == PACE_RECENT &&
	       LOAD(*LOAD(pace_words.status)) != VGPU_SLOT_SUSPENDED;
}

/* Soon: what was sampled a moment ago puts it off (pacer.c). */
static bool is_to_be_sampled(const struct cost *cost, uint64_t now_ns)
{
	return LOAD(cost->sample_at_ns) <= now_ns && LOAD(lease.meter->sample_at_ns) <= now_ns;
}

bool pace_has_lease(void)
{
	return lease.left != 0;
}

bool pace_lease(const void *context, const struct cost_of *what)
{
	const struct cost *cost;
	uint64_t ns, now_ns;

	if (!pace_has_lease() || (context && context != lease.context) || !words_let_go())
		return false;
	cost = cost_find(what);
	ns = cost_ns(cost);
	if (ns > lease.left_ns || cost_is_new(cost)) /* what is not known is more than any */
		return false;
	now_ns = clock_wall_ns();
	if (now_ns - lease.at_ns > LEASE_GAP_NS || is_to_be_sampled(cost, now_ns))
		return false; /* or the clock was set back */
	lease.left--;
	lease.charged++;
	lease.left_ns -= ns;
	lease.at_ns = now_ns;
	tally_many_add(&lease.many, window_trim(lease.meter, ns), now_ns);
	return true;
}

/* Where something is late, or waits for launches, each of them counts. Other threads' leases go on,
 * but for no more than they are for. */
void lease_take(struct meter *meter, const void *context, uint64_t now_ns)
{
	if (asks < LEASE_ASKS) {
		asks++;
		return;
	}
	if (LOAD(meter->stuck) > 0 || !bucket_is_open(meter->bucket))
		return;
	lease = (struct lease){
		.meter = meter,
		.context = context,
		.at_ns = now_ns,
		.left_ns = LEASE_NS,
		.left = LEASE_LAUNCHES,
		.many = tally_many_begin(&meter->tally),
	};
}

void lease_return(void)
{
	struct meter *meter = lease.meter;

	lease.left = 0;
	if (!lease.charged)
		return;
	bucket_charge(meter->bucket, lease.many.charged_ns, lease.at_ns);
	tally_charge_many(&meter->tally, &lease.many, lease.at_ns);
	ADD(meter->window.launches, lease.charged);
	lease.charged = 0;
}

void lease_forget(void)
{
	lease = (struct lease){.left = 0};
	asks = 0;
}
