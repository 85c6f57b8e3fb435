/* Inside pace/: what one launch costs, measured by itself. */
#pragma once

#include "meter.h"

/* Whether one of the next launches of that cost should be measured. */
bool sample_is_due(const struct meter *meter, const struct cost *cost, uint64_t now_ns);

/* Before a launch: NULL where it is not measured. Times are clock_steady_ns(), here as below. */
struct span *sample_begin(struct meter *meter, struct cost *cost, const struct pace_work *work,
			  uint64_t now_ns);
/* Behind it, when it has been charged: what is unknown is charged when the sample is settled.
 * False: it will not be. now_ns: when the driver had it. */
bool sample_end(struct span *sample, const struct pace_work *work, bool unknown, uint64_t now_ns);

/* It is over, and took so long, or SPANS_NONE: teaches what the launch costs. waited: for what was
 * launched behind it. What is charged for it only now. */
int64_t sample_settle(const struct span *span, uint64_t took_ns, bool waited);
