/*
 * Inside pace/: when a thread synchronises, which is to wait for its work, windows end before
 * the wait.
 *
 * During a wait the device may run out of work at an unknown moment. Only learned costs could show
 * how long the device was idle then, and windows exist to correct these costs. sync.c says which
 * windows end, with an event after everything that the thread has submitted. The next window begins
 * with the same event, or after the wait if the device has no work then. Copies to and from the
 * host are not charged, so a window may also end before a copy of SYNC_COPY_BYTES or more.
 *
 * The event is recorded in the stream of the thread's last launch. Before a program destroys a
 * stream or begins a capture, pace_end_streams() is called: no thread uses the stream of its last
 * launch from then on.
 */
#pragma once

#include "meter.h"

/* After the thread has submitted `work`. */
void sync_submitted(struct meter *meter, const struct pace_work *work);

/* The thread submits to a device that a gang paces: its waits, copies and stalls end no window. */
void sync_go_by_gang(void);

/* The thread's calls since its last launch. */
enum sync_state {
	SYNC_NONE,
	SYNC_MAYBE, /* it has waited, or asked for work that had not finished */
	SYNC_ENDED, /* the same, and a window ended before that */
	SYNC_COPIED /* it has copied, and a window ended before that */
};

/* Before the thread's next launch, which is `work`. */
enum sync_state sync_since(const struct meter *meter, const struct pace_work *work,
			   uint64_t now_ns);

/* Before a launch with `since` other than SYNC_NONE: begins a window, unless the open one will do.
 * is_idle: the device has no work. */
void sync_open_window(struct meter *meter, const struct pace_work *work, uint64_t now_ns,
		      enum sync_state since, bool is_idle);

void sync_forked(void); /* in a forked child */
