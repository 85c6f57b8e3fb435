/*
 * Inside pace/: this process's seats in the turns of its GPUs (src/turn/), one for each device, and
 * the devices whose launches take turns at present.
 *
 * The turns of a GPU are in a file: vgpud's, or without vgpud, one in a directory that all slices
 * share, named after the GPU's UUID (docs/design/turns.md). A seat is taken at the first launch to
 * the device. Where that fails, or the file is lost, the device has no turns, and another attempt
 * follows after a second. A process that runs asks vgpud again every 2 s: docs/design/vgpud.md says
 * why.
 */
#pragma once

#include "meter.h"
#include "region.h"
#include "turn.h"

void turns_forked(void); /* in a forked child */

/* Gives all seats up, in the process that took them and if no other thread takes or changes one.
 * now_ns: clock_steady_ns(). */
void turns_leave(uint64_t now_ns);

/* Whether there may be turns: one load. */
bool turns_are_possible(void);

/* The device's, by CUDA ordinal; NULL: there are none. Takes the seat at the first call, which
 * waits for 0.4 s at most; a turn that was returned once stays mapped until turns_forked. */
struct turn *turns_of(const struct meter *meter, int device);

/* turn_set with the slice's weight, if that or the limit has changed; and turn_set_gang. */
void turns_set(const struct meter *meter, struct turn *turn, unsigned limit_pct,
	       uint64_t closing_ns);

/* The slice's account of the device; NULL where the region is lost. */
struct vgpu_region_turn *turns_account(const struct meter *meter);

/* Looks whether the files still are there, at most each 20 ms, and asks vgpud for its own. Any
 * thread. Waits for 2 ms of 2 s at most, and for 8 ms of 4 s if vgpud does not answer. now_ns:
 * clock_coarse_ns(), from all callers. */
void turns_watch(uint64_t now_ns);

/* Whether a launch that waits for the bucket or for a group has to ask for a turn instead, as
 * another slice has come. False right after by_turn_begin_launch has said that the launch does not
 * go. */
bool turns_are_due(const struct meter *meter, int device, uint64_t now_ns);

/* Notes whether the process's launches to the device take turns, because other slices use it.
 * Returns whether that has changed. */
bool turns_note(int device, bool are_shared);
/* Whether any device's do. */
bool turns_any_shared(void);
