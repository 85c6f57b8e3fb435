/*
 * The facts about slices that vgpud keeps from one look at the machine to the next. They are the
 * GPU time that each used since vgpud first saw it, findings of the audit, and the labels of its
 * metrics.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "overview.h"

struct track_device {
	char *labels;          /* slice and GPU; NULL: the region has listed this GPU before */
	char *hami_labels;     /* as HAMi's monitor has them; NULL: not in its metrics */
	uint64_t compute_ns;   /* GPU time used since vgpud first saw the slice */
	double share;          /* since the last look, 0 to 1; below 0: not known */
	uint32_t refused_told; /* the region's count of refusals at the last event */
	uint64_t refused_ns;   /* time of that event; 0: there was none */
	uint64_t excess_bytes; /* NVML's sum for the slice's processes above the ledger */
	unsigned excess_looks; /* consecutive looks at which that was too much */
	uint64_t policy_bytes; /* the policy's memory limit; 0: none */
	unsigned weight_looks; /* consecutive looks with too large a weight for turns */
	unsigned policy_pct, policy_most_pct; /* assured and most; 0: none */
};

struct track_slice {
	char *labels;
	/* Written by the audit: the time and inode of the policy that policy_bytes and policy_pct
	 * are from. lifted_looks: at how many consecutive looks the region had limits above that
	 * policy. policy_lifted: whether they were enough to report. */
	struct timespec policy_time;
	ino_t policy_inode;
	unsigned lifted_looks;
	bool policy_lifted;
	unsigned device_count;
	struct track_device *device; /* as the overview's, in its order */
};

struct track {
	unsigned count;
	struct track_slice *slice; /* as the overview's, in its order */
};

/* Moves track from the earlier overview, which it belongs to, to a new one, which
 * overview_compare was called for. With a zeroed earlier overview, track begins. Returns 0; or
 * -ENOMEM, and track stays as it was. */
int track_follow(struct track *track, const struct overview *earlier,
		 const struct overview *overview);
void track_free(struct track *track); /* accepts a zeroed one */
