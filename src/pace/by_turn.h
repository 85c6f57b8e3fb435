/*
 * Inside pace/: launches to a device that other slices use at the same time. Such launches take
 * turns (docs/design/turns.md). A slice that is alone on the device is paced by itself, and so is
 * one that gets no turns, or too few. For these slices, by_turn_update costs a load or two.
 */
#pragma once

#include "meter.h"

void by_turn_forked(void); /* in a forked child */

/* Before each launch that no gang paces. Returns whether the launch has to ask for a turn, because
 * another slice is there, or was. If it has not, this ends the state in which the device takes
 * turns. */
bool by_turn_update(struct meter *meter, int device);

/* Waits until such a launch is admitted. Returns 0, or pace_wait_monitor()'s error for a lost
 * region. *ret_goes: the slice's turn admits the launch, and by_turn_end_launch() has to follow;
 * else the caller paces the launch. now_ns: clock_steady_ns(), here as below. */
int by_turn_begin_launch(struct meter *meter, const struct pace_work *work, uint64_t now_ns,
			 bool *ret_goes);

/* After a launch that went by a turn, whether or not the driver accepted it. */
void by_turn_end_launch(struct meter *meter, const struct pace_work *work, bool submitted,
			uint64_t now_ns);

/* From now on a gang paces the device's launches, or nothing does. */
void by_turn_stop(struct meter *meter, int device);

/* _will_wait: before the thread waits for work. _will_look: after the thread has found work
 * unfinished. _waited: after a wait. */
void by_turn_will_wait(void);
void by_turn_will_look(void);
void by_turn_waited(void);

void by_turn_end_context(const void *context);
