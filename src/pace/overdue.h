/*
 * Inside pace/: launches wait for work that is overdue, or whose cost is unknown, so that few
 * kernels that take long are in flight before one is measured. docs/design/pacing.md ("Overdue
 * work") says for how long, and what happens to kernels that themselves wait for a later launch.
 *
 * The timeout counts from when the known work before the overdue work has finished. constants.h has
 * its bounds (PATIENCE_NS and the following ones).
 */
#pragma once

#include "meter.h"

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
