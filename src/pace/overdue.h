/*
 * Inside pace/: launches wait for work that is overdue, or whose cost is unknown.
 *
 * A new kernel may take long, and a known one ten times as long as before. A launch waits for
 * overdue work, so few such kernels are in flight before one is measured.
 *
 * But a kernel may itself wait for a later launch. JAX's autotuner starts a kernel that spins until
 * everything that it times is submitted, and gives up after 100 ms. So a launch waits for
 * PATIENCE_NS at most, counted from when the known work before the overdue work has finished. Each
 * wait that ended without success doubles the next one, and a launch of the same kernel waits much
 * longer. A kernel for which a wait ended without success is marked as one that waits for launches.
 * Such a kernel has no learned cost, and is charged when it has finished.
 */
#pragma once

#include "meter.h"

void overdue_reset(struct meter *meter); /* a process that has not waited yet */

/* Before a launch. Settles finished spans now and then, and waits for overdue work as described
 * above. `pass` has the launch's cost; the function sets bypasses_bucket and held in it. *now_ns is
 * clock_steady_ns() before and after the call. Returns 0, or pace_wait_monitor()'s error for a lost
 * region.
 */
int overdue_wait(struct meter *meter, const struct pace_work *work, struct pace_pass *pass,
		 span_done_fn *settle, uint64_t *now_ns);

/* After each launch: remembers the time of a launch that was admitted after a wait without success.
 */
void overdue_note_admitted(struct meter *meter, const struct pace_pass *pass, uint64_t now_ns);

/* To be called before the span of a kernel that waits for launches is closed. No launch waits for
 * this span, because the kernel may wait for the next launches. */
void overdue_mark_spinner(struct span *span);

/* Settles a span that has finished, or never will. Returns whether its work waited for a launch. */
bool overdue_settle(const struct span *span, uint64_t took_ns);
/* After overdue_settle, when the span has been charged more_ns more: gives back what the process
 * paid for its waits. */
void overdue_refund(const struct span *span, int64_t more_ns);
