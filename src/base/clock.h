/* Time. Intervals are of the clocks that do not step. */
#pragma once

#include <stdint.h>

#define NS_PER_US ((uint64_t)1000)
#define NS_PER_MS ((uint64_t)1000000)
#define NS_PER_S  ((uint64_t)1000000000)

uint64_t clock_now_ns(void);    /* CLOCK_MONOTONIC: about 20 ns a call */
uint64_t clock_coarse_ns(void); /* the same, as of the last tick (1 to 4 ms): about 4 ns a call */

/* The time of day, CLOCK_REALTIME: it steps, and is the same in all time namespaces. */
uint64_t clock_wall_ns(void); /* about 20 ns a call */
/* The same in seconds, as of the last tick. */
int64_t clock_unix_s(void);
