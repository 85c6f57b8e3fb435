/* Inside pace/: what is measured of a device, over many launches at once. */
#pragma once

#include "meter.h"

/* Opens one, unless a good one is open: before a launch where there is nothing to do for the
 * device, or behind one. was_idle: there was nothing to do before it. */
void window_open(struct meter *meter, const struct pace_work *work, uint64_t now_ns, bool was_idle);
/* Before a launch: begins one there, if nothing is in the one that there is, and the device has
 * come to its begin; or at once. Whether it does. */
bool window_open_anew(struct meter *meter, const struct pace_work *work, uint64_t now_ns,
		      bool at_once);
/* After a launch: closes it, if it is of that stream and there is enough in it, or nothing more to
 * come. */
void window_close(struct meter *meter, const struct pace_work *work, uint64_t now_ns);
/* Ends it with what is in it, if it is of that stream, which is at work; the next one begins there.
 * Whether it did. */
bool window_split(struct meter *meter, const struct pace_work *work, uint64_t now_ns);
/* Ends it with what is in it, if it is of that stream: before a wait for the bucket, or where the
 * stream has come to its end. */
void window_cut(struct meter *meter, const struct pace_work *work, uint64_t now_ns, bool is_busy);
/* It is over, and took so long: sets right what was charged, by what it returns. */
int64_t window_settle(const struct span *span, uint64_t took_ns);
void window_end_context(struct meter *meter, const void *context);

/* What a sample's cost is charged as. */
uint64_t window_trim(const struct meter *meter, uint64_t cost_ns);

/* A process that has measured nothing. */
void window_reset(struct meter *meter);
