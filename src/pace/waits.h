/*
 * Inside pace/: what a thread waits for, and what that tells windows.
 *
 * While a thread waits for its work the device may come to its end, and nobody knows when: costs
 * would have to say for how long it was idle then, and those are what windows are to set right. So
 * a window ends before the wait, behind all that the thread has submitted, with an event by which
 * the next one begins; and if the device had nothing to do behind the wait, that begins anew there.
 * It need not be known what the wait is for: a function that waits for an event does not say what
 * that is behind.
 *
 * Copies to and from the host are no work that is charged: a window ends before them, too, and the
 * next begins behind them.
 *
 * The event goes to the stream of the thread's last launch. Who destroys a stream, or begins to
 * capture, says so before (pace_end_streams): from then on no thread touches what it launched to
 * before.
 */
#pragma once

#include "meter.h"

/* The thread has submitted that. */
void waits_submitted(struct meter *meter, const struct pace_work *work);

/* The thread submits to a gang's device: windows need not hear of its waits, copies and stalls. */
void waits_go_by_gang(void);

/* What it has done since it submitted something last. */
enum waits {
	WAITS_NONE,
	WAITS_MAYBE, /* it has waited, or looked whether something is over, which was not */
	WAITS_ENDED, /* and a window ended before that */
	WAITS_COPIED /* or before a copy */
};

/* Before its next launch, which is to that stream. */
enum waits waits_since(const struct meter *meter, const struct pace_work *work, uint64_t now_ns);

/* Behind anything of that, before the launch: begins a window, unless the one that there is serves.
 * is_idle: the device has nothing to do. */
void waits_open(struct meter *meter, const struct pace_work *work, uint64_t now_ns,
		enum waits since, bool is_idle);

void waits_forget(void); /* in a forked child */
