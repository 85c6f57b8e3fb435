/* Time. Intervals are of the clocks that do not step; steady.c says why one stands out. */
#pragma once

#include <stdint.h>

#define NS_PER_US ((uint64_t)1000)
#define NS_PER_MS ((uint64_t)1000000)
#define NS_PER_S  ((uint64_t)1000000000)

uint64_t clock_now_ns(void);    /* CLOCK_MONOTONIC: about 20 ns a call */
uint64_t clock_coarse_ns(void); /* the same, as of the last tick (1 to 4 ms): about 4 ns a call */

/*
 * For what is set against the time of a GPU, by whichever process: since some moment, the same in
 * all time namespaces. CLOCK_MONOTONIC_RAW, which neither steps nor runs faster or slower to put
 * the time of day right; before Linux 5.3 CLOCK_MONOTONIC, which does the latter. About 20 ns a
 * call.
 */
uint64_t clock_steady_ns(void);
void clock_find_steady(void); /* as the first call does else; it opens a file of /proc's */
void clock_forget(void);      /* in a forked child, whose time namespace may be another */

/* The time of day, CLOCK_REALTIME: it steps. */
uint64_t clock_wall_ns(void); /* about 20 ns a call */
/* The same in seconds, as of the last tick. */
int64_t clock_unix_s(void);
