/* Inside pace/: a sample measures one launch. Times are clock_steady_ns(). */
#pragma once

#include "meter.h"

/* Whether one of the next launches of that kind should be measured. */
bool sample_is_due(const struct meter *meter, const struct cost *cost, uint64_t now_ns);

/* Before a launch. Returns NULL if the launch is not measured. */
struct span *sample_begin(struct meter *meter, struct cost *cost, const struct pace_work *work,
			  uint64_t now_ns);
/* After the launch was charged. A launch of unknown cost is charged when its sample is settled.
 * False: there will be no such settling. now_ns: when the driver had accepted the launch. */
bool sample_end(struct span *sample, const struct pace_work *work, bool unknown, uint64_t now_ns);

/* The sample has finished and took took_ns, or SPANS_NONE: learns the launch's cost. waited: the
 * kernel waited for a later launch. Returns what was charged at this point, in ns. */
int64_t sample_settle(const struct span *span, uint64_t took_ns, bool waited);
