/*
 * Inside pace/: this process's members of the slice's gang, one a device, and their way through
 * the gate. A member's launch asks the gang (gang.h) and is charged by the gang's time; the costs
 * of single launches play no part (in_flight.h).
 *
 * A gang with fewer than two living members throttles nobody: then the device is paced by itself.
 */
#pragma once

#include "meter.h"

void members_attach(struct region *region);
void members_forget(void); /* in a forked child */

/* Whether work of the process on the meter's device goes through the gang now. */
bool member_is(struct meter *meter, int device);

/* Before a launch: returns when it may go. 0, or what pace_wait says of a lost region. now_ns:
 * clock_steady_ns(), here as below. */
int member_enter(struct meter *meter, const struct pace_work *work, uint64_t now_ns);

/* Behind a launch, whether or not the driver took it. */
void member_leave(const struct pace_work *work, bool submitted, uint64_t now_ns);

/* Whether the process has a member, and the region is there. */
bool members_any(void);

/* Before the thread waits for work, or after it has asked in vain whether work is over; and behind
 * a wait. */
void members_will_wait(void);
void members_will_look(void);
void members_waited(void);

void members_end_context(const void *context);
