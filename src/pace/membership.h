/*
 * Inside pace/: the gang that each device of this process is a member of, if any, as
 * docs/design/gangs.md has it: the slice's, one of several slices (joint.h), or the device's group.
 *
 * A device that becomes a member of another gang leaves the first one. Before that, the function
 * that membership_attach got notes in the first gang whether the device has work in flight.
 *
 * Any thread may call any function. Times are clock_steady_ns(), and devices are CUDA ordinals
 * from 0 to VGPU_DEVICES_MAX - 1.
 */
#pragma once

#include "gang.h"
#include "meter.h"

/* look: notes in its gang whether the member has work in flight. It makes no driver call that can
 * block, since a lock is held. */
void membership_attach(struct region *region, void (*look)(int device, uint64_t now_ns));
void membership_forked(void); /* in a forked child */

/* The gang of the device that it is a member of, or was last; NULL: it never was a member. */
const struct gang *membership_gang(int device);

/* The member's own record, which the functions of gang.h and holder.h take. */
struct gang_member *membership_self(int device);

/* Whether the device is a member of any gang; of the slice's or of several slices'; of its device's
 * group. */
bool membership_is_any(int device);
bool membership_is_of_gang(int device);
bool membership_is_of_group(int device);

bool membership_is_attached(void); /* to a region */

/* Whether the process has any member, and the region is there. */
bool membership_exists(void);

/* Whether the device is to be a member of the slice's gang, by the policy or by a sign that was
 * found. */
bool membership_wants_gang(int device);

/* Before each launch: makes the device a member of the slice's gang, or of the gang that the policy
 * names, if membership_wants_gang(), and else of neither. */
void membership_update_gang(const struct meter *meter, int device);

/* The living members of the slice's gang, or of that of several slices, as of at most 10 ms ago. */
unsigned membership_living(uint64_t now_ns);

/* Shows the slice's other processes that this process launches to the device. Returns whether two
 * processes of the slice have launched to it in the last MEET_NS. The region must be attached. */
bool membership_show_launch(const struct meter *meter, int device, uint64_t now_ns);

/* Makes the device, which is to be in no gang, a member of its group (shares), or ends that.
 * Returns whether the device is a member of the group now. It is not if the table of members is
 * full. */
bool membership_update_group(const struct meter *meter, int device, bool shares);

/* The group of the device, whether or not the device is a member of it. */
const struct gang *membership_group(int device);
