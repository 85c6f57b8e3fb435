/* vgpu top: its state from one snapshot of the machine to the next. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "overview.h"

#define TOP_HISTORY 64 /* rounds */

enum top_sort { TOP_BY_NAME, TOP_BY_MEMORY, TOP_BY_CORES, TOP_BY_PID };

/* The share of a device that a slice used in the last rounds, percent, the latest last; -1: not
 * known. */
struct top_history {
	const char *region_path; /* belongs to the snapshot that the history was made with */
	char uuid[VGPU_UUID_LEN + 1];
	int16_t pct[TOP_HISTORY];
};

struct top {
	struct overview_looker looker;
	struct overview now;
	struct fault trouble; /* why the last snapshot failed; "": it did not */
	unsigned history_count;
	struct top_history *history; /* sorted by path and UUID */
	uint64_t interval_ns;
	uint64_t rounds; /* to end after; 0: no end */
	bool json;       /* --batch prints JSON */
	bool all;        /* also shows processes that are in no slice */
	/* How it is shown; the screen's. */
	enum top_sort sort;
	bool folded, help;
	unsigned scroll; /* lines of the table above the screen */
};

/* Takes the next snapshot, and compares it with the one before. 0 or a negative errno; on failure,
 * top->now is empty, and top->trouble has the reason. */
int top_look(struct top *top);

const struct top_history *top_find_history(const struct top *top,
					   const struct overview_slice *slice,
					   const struct overview_device *device);

/* Takes and draws snapshots on the terminal until the user ends it. Returns the exit status.
 * Without ncurses in this build, prints an error. */
int top_run(struct top *top);
