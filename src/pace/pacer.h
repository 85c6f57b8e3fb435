/* Inside pace/: the quota, towards the gate. */
#pragma once

#include "meter.h"

void pacer_attach(struct region *region, const struct pace_quota *quotas, enum pace_rule rule,
		  const struct pace_driver *driver);
void pacer_forget(void); /* in a forked child */

/* Whether it is there, with all that meters point to. */
bool pacer_has_region(void);

/* The device's meter; NULL where it is not in the slice. Its quota, percent; 0: none. */
struct meter *pacer_meter(int device);
unsigned pacer_limit(const struct meter *meter);

/* Once in a second of work, device_util is made anew. */
void pacer_show(struct meter *meter, uint64_t now_ns);

/* Whether any device of the slice has a compute quota now. */
bool pacer_any_limit(void);

/* Whether the stream is at work. Where costs say that all is done, it is not: nothing was submitted
 * since, so the device was at work all the time. */
bool pacer_is_busy(struct meter *meter, const struct pace_work *work, uint64_t now_ns);

/* The process has waited for all that it launched: its utilisation is shown as 0 until it launches
 * again. */
void pacer_rest(struct meter *meter, uint64_t now_ns);

/* None has, and launches go past the pacer. */
void pacer_lift(void);
