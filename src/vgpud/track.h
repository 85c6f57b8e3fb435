/*
 * What vgpud remembers of the slices from one look at the machine to the next: the GPU time that
 * each took in all, findings of the audit, and the labels of its metrics.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "overview.h"
#include "pods.h"

struct track_device {
	char *labels;        /* the slice's, and the GPU's; NULL: the region lists the GPU twice */
	char *hami_labels;   /* as HAMi's monitor has them; NULL: it has no such metrics */
	uint64_t compute_ns; /* GPU time that the slice took while vgpud looked */
	double share;        /* of the GPU's time since the look before; below 0: not known */
	uint32_t refused_told; /* allocations refused, as the last event of them had it */
	uint64_t refused_ns;   /* when that was, 0: never */
	uint64_t excess_bytes; /* what NVML counts for the slice's processes above the ledger */
	unsigned excess_looks; /* for how many looks on end that was too much */
	uint64_t policy_bytes; /* the limits of the slice's policy, 0 for none */
	unsigned weight_looks; /* for how many looks on end its weight for turns was too large */
	unsigned policy_pct,
		policy_most_pct; /* of cores; the latter the most, at least the former */
};

struct track_slice {
	char *labels;
	struct pods_one pod; /* of a container of HAMi's; zeroed for others */
	/* The audit's: the policy that policy_bytes and policy_pct are of, and for how many looks
	 * on end the region has had limits above it; whether these were enough to say so. */
	struct timespec policy_time;
	ino_t policy_inode;
	unsigned lifted_looks;
	bool policy_lifted;
	unsigned device_count;
	struct track_device *device; /* as the overview's, in its order */
};

struct track {
	const char *pods; /* the kubelet's directory of logs (pods.h) */
	unsigned count;
	struct track_slice *slice; /* as the overview's, in its order */
};

/* Goes on from the earlier overview, which it is of, to a new one. Without an earlier one (zeroed),
 * begins. -ENOMEM leaves it as it was. overview_compare has been called. */
int track_follow(struct track *track, const struct overview *earlier,
		 const struct overview *overview);
void track_free(struct track *track); /* also of a zeroed one; pods stays */
