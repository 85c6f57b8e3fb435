/*
 * What the tests of the compute quota share: a process with one, kernels that take as long as they
 * are told, and what part of a GPU's time they were given.
 *
 * A busy machine makes programs slower, never faster. So no measurement may exceed the quota, and
 * the best of ATTEMPTS must come near it, not counting the time in which the thread that launches
 * waited for a processor.
 */
#pragma once

#include "launch.h"

#define ATTEMPTS 8
#define MORE_PCT 3 /* than the quota: what the bucket holds, by the time that is measured */

/* What buckets hold here, ns: measurements are of parts of a second, in which the default would be
 * more than MORE_PCT of the time after a pause that a busy machine makes. */
#define PACE_BURST_NS ((uint64_t)4000000)
#define LESS_PCT      6
#define STALLED       4 /* a fourth of the quota is too little, twice in a row */

extern struct vgpu_region_file *file; /* writable: after pace_start or pace_map */

/* CUDA, a stream, spin_ns, buckets of PACE_BURST_NS, and the slice's region; cores:
 * CUDA_DEVICE_SM_LIMIT. */
void pace_start(const char *cores);
void pace_map(void);
struct vgpu_region_bucket *bucket_of(unsigned gpu);
int64_t level_of(unsigned gpu);
/* So deep that nothing goes for many seconds; and out of it. */
void into_debt(unsigned gpu);
void out_of_debt(unsigned gpu);

uint64_t now_ns(void);
/* How long this thread was ready and had no processor, in all. */
uint64_t delayed_ns(void);

/* A source of work: each call launches so many ns of it. */
typedef uint64_t step_fn(void *arg);

/* The one stream, kernels of *(uint64_t *)arg ns. */
uint64_t step_alone(void *ns);

struct share {
	double pct;  /* of the time */
	double fair; /* of the time that this thread had a processor, or wanted none */
};
/* Between one launch and another, so that debts are the same at both ends. */
struct share share_of(step_fn *step, void *arg, unsigned ms);

/* Looks for a share until it has seen one that is as the quota says. */
void check_share(const char *what, step_fn *step, void *arg, double quota);
/* For those who measure themselves: returns whether that was it, and fails when it is too much, or
 * was the last attempt. */
bool share_is_right(const char *what, struct share share, double quota, double less,
		    unsigned attempt);
