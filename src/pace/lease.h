/*
 * Inside pace/: a lease is a number of launches that a thread may make without asking the pacer.
 *
 * Asking takes a fifth of the driver's time for a launch, mostly for words that other threads and
 * processes write too. So an admitted thread may make some more launches of known
 * cost, and in relaxed mode (meter.h) many. The thread adds their costs up in words of its own, and
 * charges them when it asks the next time. Until then no other thread knows of these launches, so
 * they are a small part of what may be launched before the bucket shuts. In relaxed mode, a lease
 * of which such a part is used is charged and continues, a few times. A launch that the driver
 * refuses changes nothing of that.
 *
 * A thread asks after a pause, and after it has waited for its work. There the driver can report
 * that the device was idle, where costs only give an estimate. A launch that is due for a sample
 * asks, too. Leases end at waits and at long kernels, so work that recurs at the same place would
 * otherwise never be sampled.
 *
 * If several threads launch, no thread knows of pauses, and there are no leases.
 *
 * Launches that are not charged when their thread ends are lost. So a thread that has not launched
 * for a while has no lease, and only threads that have launched for longer have longer ones.
 */
#pragma once

#include "meter.h"

/* After a launch of known cost: gives the thread a lease, if nothing forbids it. at_ns: when the
 * launch was admitted; now_ns: when the driver had accepted it; clock_steady_ns(). */
void lease_take(struct meter *meter, const struct pace_work *work, uint64_t at_ns, uint64_t now_ns);

/* Before the next launch that asks: charges the launches under the lease. */
void lease_return(void);

void lease_forked(void); /* in a forked child */
