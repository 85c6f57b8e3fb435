/*
 * Inside pace/: the compute quotas of the devices, and their meters.
 *
 * A quota may come from the slice's policy, from the region, or from the process's environment. The
 * environment's counts only if the region never had one. Both count only as enum pace_rule says.
 * Of the policy's quota and theirs, the lower one holds. Monitors and `vgpu set` change the
 * region's, so the quotas are read for each launch.
 *
 * Of a quota of two figures, such as 30-100, the first one holds wherever the process cannot see
 * what other slices want. So a slice never takes more than that alongside slices that it does not
 * see.
 */
#pragma once

#include "meter.h"

void cores_attach(struct region *region, const struct pace_quota *quotas, enum pace_rule rule);
void cores_forked(void); /* in a forked child */

/* The region; NULL where there is none, or where it is lost. */
struct region *cores_region(void);

/* The device's meter, by CUDA ordinal; NULL where the device is not in the slice. */
struct meter *cores_meter(int device);
/* The same, of any ordinal from 0 to VGPU_DEVICES_MAX - 1: also where it is not in the slice. */
struct meter *cores_meter_at(int device);

/* The device's quota, percent; 0: none. If turns show what other slices want of the device, it is
 * the most that the slice may take while no other slice wants the device. Otherwise it is the
 * assured percentage. */
unsigned cores_limit(const struct meter *meter);
/* The percentage of the device that the slice is assured while other slices want the device: its
 * weight among them. 0: the slice has no quota, and gets the time that the quotas of the others
 * leave. */
unsigned cores_assured(const struct meter *meter);
/* Notes whether a gang, which gets no more than it is assured, throttles launches to the device.
 */
void cores_note_gang(struct meter *meter, bool goes_by_gang);
/* cores_limit, by the device's number in the region. */
unsigned cores_limit_at(uint32_t index);

/* Whether any device of the slice has a compute quota now. */
bool cores_any_limit(void);

/* cores_note_limit: whether the device has a quota, as a launch finds it. If that has changed, the
 * open window is dropped, because nothing was charged in the time without a quota. cores_lift: no
 * device has a quota, and launches bypass the pacer. */
void cores_note_limit(struct meter *meter, bool limited);
void cores_lift(void);
