/* What launches were done when, and which part of the time their work is. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A launch that is done. */
struct done {
	double at_us; /* from when the program began */
	double us;
};

/* In the order in which they were done, as all that follow want them. */
void done_sort(struct done *done, size_t count);

/* The work from the first completion after that time to the last, in the time between the two. */
double done_share_since(const struct done *done, size_t count, double from_us);

/* Of the time between the two; what is done counts for the time before that its work takes. */
double done_share_between(const struct done *done, size_t count, double from_us, double to_us);

/* Each launch counts for the time since the one before it was done. Where that is a pause, nobody
 * knows when it began: then it counts for as long as most others. The first, too. False: there is
 * no memory. */
bool done_count_by_time(struct done *done, size_t count);
