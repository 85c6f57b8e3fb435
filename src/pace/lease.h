/*
 * Inside pace/: launches that a thread may make without asking.
 *
 * A question takes a fifth of what the driver takes for a launch, most of it for words that other
 * threads and processes write, too. So an admitted thread may make some more launches of known
 * cost, and in relaxed mode (meter.h) many. The thread adds their costs up in words of its own, and
 * charges them when it asks the next time. Until then no other thread knows of these launches, so
 * they are a small part of what may be launched before the bucket shuts. In relaxed mode, a lease
 * of which such a part is used is charged and continues, a few times. A launch that the driver
 * refuses changes nothing of that.
 *
 * After a pause a thread asks, and after it has waited for its work: that is where the driver can
 * tell that the device was idle, at which costs only guess. So does what is to be sampled: as
 * leases end where a thread waits, and at what is long, what recurs would else never be measured by
 * itself.
 *
 * Where several threads launch none of them knows of pauses, and there are no leases.
 *
 * What a thread has not returned when it ends is lost. So one that has not launched for a while has
 * none, and longer ones only who has launched for longer.
 */
#pragma once

#include "meter.h"

/* After a launch of known cost: the thread has one from now on, if nothing is against it. at_ns:
 * when it was let go; now_ns: when the driver had it; clock_steady_ns(). */
void lease_take(struct meter *meter, const struct pace_work *work, uint64_t at_ns, uint64_t now_ns);

/* Before the next one that asks: what was launched is charged. */
void lease_return(void);

void lease_forget(void); /* in a forked child */
