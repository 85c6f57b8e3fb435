/*
 * Inside pace/: a lease is a number of launches that a thread may make without asking the pacer
 * (docs/design/pacing.md). The thread adds their costs up in words of its own, and charges them
 * when it asks the next time, or when the next part of the lease begins. A launch that the driver
 * refuses is charged as well. Costs that the thread has not charged when it ends are lost.
 *
 * A thread asks after a pause, and after it has waited for its work. Then the driver can report
 * that the device was idle, where costs only give an estimate. A launch that is due for a sample
 * asks, too. Leases end at waits and at long kernels, so work that recurs at the same place would
 * otherwise never be sampled. A lease ends when another thread charges the device, because its
 * holder no longer knows of pauses.
 */
#pragma once

#include "meter.h"

/* After a launch of known cost: gives the thread a lease, if nothing forbids it. at_ns: when the
 * launch was admitted; now_ns: when the driver had accepted it; clock_steady_ns(). */
void lease_take(struct meter *meter, const struct pace_work *work, uint64_t at_ns, uint64_t now_ns);

/* Before the next launch that asks: charges the launches under the lease. */
void lease_return(void);

void lease_forked(void); /* in a forked child */
