/*
 * Inside pace/: work that is not over when it should be, or of which nobody knows when it should.
 *
 * Nothing more is submitted until it is: of kernels that take long, or ten times as long as they
 * did, not many shall be on their way before the first is measured. But a kernel may wait for what
 * is launched after it: tuners start one that spins until all that they want to time is behind it,
 * and gives up after 100 ms (JAX's). So another kernel is held for PATIENCE_NS only, from when
 * what is known before the first is over, twice as long for each that was let go in vain, and the
 * same kernel once more for a good while. That it waits is learned then in the place of what it
 * costs: it is charged when it is over.
 */
#pragma once

#include "meter.h"

void late_reset(struct meter *meter); /* a process that has waited for nothing */

/* Before a launch: sees what is over, now and then; and waits until what should be is, or as long
 * as patience lasts. 0, or what pace_wait says of a lost region. pass: has the cost, and is told
 * whether it goes and was held. now_ns: clock_steady_ns(), which it keeps true. */
int late_wait(struct meter *meter, const struct pace_work *work, struct pace_pass *pass,
	      span_done_fn *settle, uint64_t *now_ns);

/* After each launch. */
void late_let_go(struct meter *meter, const struct pace_pass *pass, uint64_t now_ns);

/* Before it is closed, of a sample of what is known to wait: nobody waits for it, and some of what
 * comes next is awaited by it. */
void late_expect(struct span *span);

/* Of a span that is over, or never will be. Whether it waited for a launch. */
bool late_settle(const struct span *span, uint64_t took_ns);
/* Behind that, when it has been charged so much more: what was paid ahead is taken back. */
void late_take_back(const struct span *span, int64_t more_ns);
