/* Inside pace/: windows measure the time of many launches at once (window.c). */
#pragma once

#include "meter.h"

/* Begins a window unless a good one is open. The window begins before a launch if the device has no
 * work, and otherwise after a launch. was_idle: the device had no work before the launch. */
void window_open(struct meter *meter, const struct pace_work *work, uint64_t now_ns, bool was_idle);
/* Before a launch: begins a window there, if the open one has no launches and the device has
 * reached its begin; with at_once, in any case. Returns whether a window began. */
bool window_reopen(struct meter *meter, const struct pace_work *work, uint64_t now_ns,
		   bool at_once);
/* After a launch: ends the window if it is of that stream, and has enough work or gets no more. */
void window_close_if_done(struct meter *meter, const struct pace_work *work, uint64_t now_ns);
/* Ends the window if it is of that stream, which has work in flight; the next begins there. Returns
 * whether it ended. */
bool window_split(struct meter *meter, const struct pace_work *work, uint64_t now_ns);
/* Ends the window if it is of that stream: before a wait for the bucket, or when the stream has
 * finished. is_busy: the stream has work in flight. */
void window_cut(struct meter *meter, const struct pace_work *work, uint64_t now_ns, bool is_busy);
/* The span of a window has finished and took took_ns. Corrects what was charged, and returns the
 * correction in ns. */
int64_t window_settle(const struct span *span, uint64_t took_ns);
void window_end_context(struct meter *meter, const void *context);

/* The charge for a launch of that learned cost: the cost times the scale. */
uint64_t window_scale(const struct meter *meter, uint64_t cost_ns);
