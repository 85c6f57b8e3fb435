/*
 * Inside pace/: the constants of gangs. Each line says the unit, where the value comes from, and
 * what happens at half and at twice of it.
 */
#pragma once

#include "clock.h"

/* ns of debt at which a gang begins to close. To close takes some milliseconds, in which devices
 * wait for each other. Half: twice as many closings, each costs useful time. Twice: a job pauses
 * for twice as long. */
#define GANG_SHUT_NS ((int64_t)-20000000)

/* A gang that takes long to close runs and pauses for longer: its debt is so many times the time
 * that it takes to close, but not more than so many ns. Half: closings cost more of the job's time.
 * Twice: a job pauses for longer. */
#define GANG_CLOSING_TIMES 8
#define GANG_SHUT_MOST_NS  ((int64_t)-80000000)

/* ns of debt that a gang can have at most. A rank that begins late, or waits for another machine,
 * keeps its peers spinning for seconds: the job goes on soon after all the same. Half: kernels of
 * more than 0.5 s at a quota of 50 get more than it. Twice: a job pauses for longer behind them. */
#define GANG_DEBT_NS ((int64_t)-500000000)

/* ns without a look after which a member counts as idle. Half: hosts that compute for so long are
 * taken for stopped. Twice: a stopped rank is charged for longer. */
#define GANG_STALE_NS (1 * NS_PER_S)

/* ns after which a member that has not looked is asked for whether it lives: one system call. */
#define GANG_DEAD_NS (20 * NS_PER_MS)

/* ns for which a member that has become idle waits before it goes on: by then, the others see the
 * end of the collective that ended with it. Half: ranks overtake each other while they close.
 * Twice: each launch of a rank that is behind costs more. */
#define GANG_GRACE_NS (50 * NS_PER_US)

/* ns of work in flight, about, that a member may have while it catches up with the member that has
 * launched the most collectives. Half: each launch waits for the one before it, and a closing is
 * longer. Twice: members overtake each other by more. */
#define GANG_CATCH_UP_NS (200 * NS_PER_US)

/* ns of closing in which members catch up so: they are behind by their run-ahead, which is
 * GANG_AHEAD_LEAST_NS. Half: members whose hosts pause go on launch by launch. Twice: members whose
 * numbers of collectives cannot be compared spin for longer. */
#define GANG_CATCH_UP_FOR_NS (20 * NS_PER_MS)

/* ns of closing in which members go on, and of the first phase in which none does. Half: jobs whose
 * kernels are long spin in some closings. Twice: members that do not wait for each other close
 * later. */
#define GANG_SOFT_NS (100 * NS_PER_MS)
#define GANG_HARD_NS (25 * NS_PER_MS)

/* ns without any progress after which a launch goes, twice as long for each one that went; of a
 * process with one device, and with several. Half: kernels that take longer are followed by one
 * more in a closing. Twice: a thread that has to launch to another device first waits longer. */
#define GANG_PATIENCE_NS         (20 * NS_PER_MS)
#define GANG_PATIENCE_SEVERAL_NS (1 * NS_PER_MS)

/* ns of work in flight, about, with which a member's launches wait although the gang is open: what
 * a host has launched ahead is debt once the gang closes. Half: hosts that pause for so long let
 * their device run dry. Twice: a gang that closes uses so much more at once, and pauses longer. */
#define GANG_AHEAD_NS (32 * NS_PER_MS)

/* The same as the gang is about to close: what would be in flight then is not launched. Half: a
 * device can run dry just before. Twice: ranks are further apart as the gang begins to close. */
#define GANG_AHEAD_LEAST_NS (4 * NS_PER_MS)

/* ns between two looks of such a launch. */
#define GANG_AHEAD_POLL_NS (500 * NS_PER_US)

/* ns between questions while a gang closes; a sleep of 20 us takes some 75. */
#define GANG_POLL_NS (20 * NS_PER_US)

/* ns from one mark to the next, and from one look to the next, while a gang is open: the least
 * where launches find the device idle, twice as long for each look that finds it busy. Half: a host
 * that launches all the time loses 2 % more for marks. Twice: pauses of the device between launches
 * that are shorter than that count as work. */
#define MARK_LEAST_NS (100 * NS_PER_US)
#define MARK_MOST_NS  (1 * NS_PER_MS)

/* ns for which each launch is marked by itself after the driver refused a mark behind all streams:
 * it does so while a graph is captured. */
#define MARK_STREAMS_NS (500 * NS_PER_MS)

/* The mean time of a launch is of the last so many marks, about. */
#define MEAN_PART 4
