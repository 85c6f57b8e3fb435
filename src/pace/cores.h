/*
 * Inside pace/: the compute quotas of the devices, and their meters.
 *
 * A quota may come from the slice's policy, from the region, and from the process's environment;
 * the strictest holds. Monitors and `vgpu set` change those of the region, so they are read for
 * each launch.
 *
 * Of a quota of two figures, such as 30-100, the first one holds wherever the process cannot see
 * what other slices want: a slice never takes more than that beside slices that it does not see.
 */
#pragma once

#include "meter.h"

void cores_attach(struct region *region, const struct pace_quota *quotas, enum pace_rule rule);
void cores_forget(void); /* in a forked child */

/* The region; NULL where there is none, or where it is lost. */
struct region *cores_region(void);

/* The device's meter, by CUDA ordinal; NULL where the device is not in the slice. */
struct meter *cores_meter(int device);
/* The same, of any ordinal from 0 to VGPU_DEVICES_MAX - 1: also where it is not in the slice. */
struct meter *cores_meter_at(int device);

/* The device's quota, percent; 0: none. It is the most that the slice may take while no other
 * wants the device where that can be seen, and else what it is assured. */
unsigned cores_limit(const struct meter *meter);
/* What the slice is assured of the device where others want it, percent: its weight among them. 0:
 * what their quotas leave. */
unsigned cores_assured(const struct meter *meter);
/* Launches to the device go by a gang, which takes no turns; or do again. */
void cores_note_gang(struct meter *meter, bool goes_by_gang);
/* cores_limit, by the device's number in the region. */
unsigned cores_limit_at(uint32_t index);

/* Whether any device of the slice has a compute quota now. */
bool cores_any_limit(void);

/* Whether the device has one as a launch comes: what is being measured holds no charges of the time
 * without. And that no device has one, and launches go past the pacer. */
void cores_note_limit(struct meter *meter, bool limited);
void cores_lift(void);
