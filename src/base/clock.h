/* Clocks, in nanoseconds unless a name says otherwise. clock_steady.c explains clock_steady_ns. */
#pragma once

#include <stdint.h>

#define NS_PER_US ((uint64_t)1000)
#define NS_PER_MS ((uint64_t)1000000)
#define NS_PER_S  ((uint64_t)1000000000)

uint64_t clock_now_ns(void);    /* CLOCK_MONOTONIC, which never steps: about 20 ns a call */
uint64_t clock_coarse_ns(void); /* CLOCK_MONOTONIC at the last tick (1 to 4 ms): about 4 ns */

/*
 * The time since a moment that is the same in all time namespaces. Processes compare it with each
 * other and with the time of a GPU. It is CLOCK_MONOTONIC_RAW, which never steps and is not slewed
 * to correct the time of day; before Linux 5.3 it is CLOCK_MONOTONIC, which is slewed. About 20 ns
 * a call.
 */
uint64_t clock_steady_ns(void);
/* Makes what the first clock_steady_ns needs, which opens a file of /proc. */
void clock_find_steady(void);
/* For a forked child, whose time namespace may be another. */
void clock_forked(void);

/* The time of day, CLOCK_REALTIME, which may step. About 20 ns a call. */
uint64_t clock_wall_ns(void);
/* The time of day in seconds since 1970, at the last tick. */
int64_t clock_unix_s(void);
