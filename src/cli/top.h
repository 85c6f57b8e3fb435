/* vgpu top: what is looked at, round by round, and how it is to be shown. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "overview.h"

#define TOP_HISTORY 64 /* rounds */

enum top_sort { TOP_BY_NAME, TOP_BY_MEMORY, TOP_BY_CORES, TOP_BY_PID };

/* The shares of GPU time that a slice took in the last rounds, percent, the last one last; -1: not
 * known. */
struct top_history {
	const char *region_path; /* of the look that it was made in */
	char uuid[VGPU_UUID_LEN + 1];
	int16_t pct[TOP_HISTORY];
};

struct top {
	struct overview_looker looker;
	struct overview now;
	struct fault trouble; /* why the last look found nothing; "" */
	unsigned history_count;
	struct top_history *history; /* by path and UUID */
	uint64_t interval_ns;
	uint64_t rounds; /* after how many to end, 0: never */
	bool json;       /* of --batch */
	bool all;        /* also what is in no slice */
	/* How it is shown; the screen's. */
	enum top_sort sort;
	bool folded, help;
	unsigned scroll; /* lines that are above the screen */
};

/* The next look, compared with the one before. On failure, top->now is empty, and trouble says why.
 * 0 or a negative errno. */
int top_look(struct top *top);

const struct top_history *top_find_history(const struct top *top,
					   const struct overview_slice *slice,
					   const struct overview_device *device);

/* Looks and draws on the terminal until somebody ends it: what to exit with. Says so, where this
 * vgpu was built without ncurses. */
int top_run(struct top *top);
