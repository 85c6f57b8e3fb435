/*
 * Shared by the tests of the compute quota: a process with a quota, kernels of a given
 * duration, and measurements of its share of a GPU's time.
 *
 * A busy machine makes programs slower, never faster. So no measurement may exceed the quota.
 * The best of ATTEMPTS must come near it, not counting the time in which the launching thread
 * waited for a processor.
 */
#pragma once

#include "launch.h"

#define ATTEMPTS 8
/* Points allowed above the quota: the credit in the bucket, relative to the measured time. */
#define MORE_PCT 3

/* The burst of the buckets in these tests. Measurements take parts of a second. After a pause
 * on a busy machine, the default burst would be more than MORE_PCT of that time. */
#define PACE_BURST_NS ((uint64_t)4000000)
#define LESS_PCT      6
#define STALLED       4 /* less than a fourth of the quota, twice in a row, fails at once */

extern struct vgpu_region_file *file; /* writable; set by pace_start and pace_map */

/* Starts CUDA, makes a stream, spin_ns and buckets of PACE_BURST_NS, and maps the slice's
 * region. cores: CUDA_DEVICE_SM_LIMIT. */
void pace_start(const char *cores);
void pace_map(void);
struct vgpu_region_bucket *bucket_of(unsigned gpu);
int64_t level_of(unsigned gpu);
/* into_debt makes a debt that stops launches for many seconds; out_of_debt removes it. */
void into_debt(unsigned gpu);
void out_of_debt(unsigned gpu);

uint64_t now_ns(void);
/* The total time in which this thread was ready and had no processor. */
uint64_t delayed_ns(void);

/* A source of work. Each call launches work, and returns its duration in ns. */
typedef uint64_t step_fn(void *arg);

/* Launches a kernel of *(uint64_t *)ns nanoseconds in the one stream. */
uint64_t step_alone(void *ns);

struct share {
	double pct;  /* of the time */
	double fair; /* of the time in which this thread had a processor, or needed none */
};
/* Measures a share between one launch and another, so that debts are the same at both ends. */
struct share share_of(step_fn *step, void *arg, unsigned ms);

/* Measures shares until one is as the quota demands. */
void check_share(const char *what, step_fn *step, void *arg, double quota);
/* For tests that measure by themselves. Returns whether the share is right. Fails if the share
 * is too large, or if this was the last attempt. */
bool share_is_right(const char *what, struct share share, double quota, double less,
		    unsigned attempt);
