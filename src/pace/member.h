/*
 * Inside pace/: this process's members of gangs (membership.h), one for each device, and how their
 * launches are admitted. A member's launch asks the gang (gang.h) and is charged by the gang's
 * time; the costs of single launches play no part (in_flight.h). Events of one process contain the
 * time slices of the slice's other processes on the device, so only the time of all of them
 * together is known.
 */
#pragma once

#include "meter.h"

void members_attach(struct region *region);
void members_forked(void); /* in a forked child */

/* Before each launch: the device joins or leaves the gang if that is due. Returns whether the gang
 * paces the launch. */
bool member_update_gang(struct meter *meter, int device);

/* Before each launch that neither a gang nor turns pace: the device joins or leaves its group if
 * that is due. Returns whether the group paces the launch. */
bool member_update_group(struct meter *meter, int device, uint64_t now_ns);

/*
 * A device whose launches go by turns. The processes of the slice that share it have it one after
 * the other (holder.h), and the slice pays for its turns, not the group.
 *
 *     member_begin_turns  before the first such launch
 *     member_ask_turn     before each one: 0, or for how long this process should wait, in ns.
 *                         in_flight: it has work in flight. *ret_waits: another process has the
 *                         device, so this one wants no turn. Else this one keeps the device until
 *                         member_rest; if it is to wait, another one wants the device next
 *     member_sleep        waits for that long, or until the device is free
 *     member_keep         after each one: another thread may have seen the end of the work before
 *     member_rest         all of the process's work is over
 *     member_end_turns    after the last one
 */
void member_begin_turns(const struct meter *meter, int device, uint64_t now_ns);
uint64_t member_ask_turn(const struct meter *meter, int device, bool in_flight, uint64_t now_ns,
			 bool *ret_waits);
void member_sleep(int device, uint64_t wait_ns);
void member_keep(int device, uint64_t now_ns);
void member_rest(int device, uint64_t now_ns);
void member_end_turns(const struct meter *meter, int device, uint64_t now_ns);

/* Waits until a launch is admitted for which member_update_gang() or member_update_group() has
 * returned true. Returns 0 then, -EAGAIN if the gang does not pace the launch any more and
 * something else must, or pace_wait_monitor()'s error for a lost region. now_ns: clock_steady_ns(),
 * here as below. */
int member_begin_launch(struct meter *meter, const struct pace_work *work, uint64_t now_ns);

/* After a launch, whether or not the driver accepted it. */
void member_end_launch(const struct pace_work *work, bool submitted, uint64_t now_ns);

/* _will_wait: before the thread waits for work. _will_look: after the thread has found work
 * unfinished. _waited: after a wait. */
void members_will_wait(void);
void members_will_look(void);
void members_waited(void);

void members_end_context(const void *context);
