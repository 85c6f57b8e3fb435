/*
 * Inside pace/: launches that a thread may make without asking.
 *
 * To ask takes a tenth of what the driver takes for a launch, most of it for the clock and for
 * words that other threads and processes write, too. So who was let go may launch some more that
 * are short, of known cost, for LEASE_NS together: they are added up in words of the thread's own,
 * and charged when it asks the next time, to the time at which the lease was taken. Until then
 * nobody else knows of them, which for so little does not matter.
 *
 * How many launches one is for varies: what recurs would else be asked for at the same place each
 * time, and nothing but that be measured by itself. What a thread has not returned when it ends is
 * found missing by a window.
 */
#pragma once

#include "meter.h"

/* After a launch: the thread has one from now on, if nothing is against it. */
void lease_take(struct meter *meter, const void *context, uint64_t now_ns);

/* Before the next one that asks: what was launched is charged. */
void lease_return(void);

void lease_forget(void); /* in a forked child */
