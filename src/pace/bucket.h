/*
 * GPU time as currency: the bucket of a device, which all processes of the slice share
 * (vgpu_region.h has its words).
 *
 * Time fills it, at the quota's rate, up to BUCKET_FULL_NS. What is submitted is charged at once,
 * by what it is thought to cost; measuring corrects that later. Launches go until BUCKET_SHUT_NS of
 * debt, and again when there is no more than BUCKET_OPEN_NS: so nobody sleeps for each launch, and
 * threads that waited come back while there is work for all of them, which the device can do side
 * by side. Debt is as deep as long kernels drive it; it is never forgiven.
 *
 * No lock, and no instruction is a bad one to die at: each change is of one word, and what a
 * process had still to do of a change is lost, some milliseconds at most.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "vgpu_region.h"

#define BUCKET_FULL_NS ((int64_t)4000000)
#define BUCKET_OPEN_NS ((int64_t)0)
#define BUCKET_SHUT_NS ((int64_t)-4000000)

/* What there is, in ns of GPU time; negative: debt. */
int64_t bucket_level(const struct vgpu_region_bucket *bucket);

/* What the time since the last call has brought, at cores_pct (1 to 99) of it. Cheap when it was
 * just done. now_ns: clock_wall_ns(), here as below. */
void bucket_refill(struct vgpu_region_bucket *bucket, unsigned cores_pct, uint64_t now_ns);

/* How much may be charged until no launch may go: ns, 0 or more. */
int64_t bucket_room(const struct vgpu_region_bucket *bucket);

/* Whether a launch may go. */
bool bucket_is_open(struct vgpu_region_bucket *bucket);

/* How long until it is, if nothing else changes: ns, 0 if it is now. */
uint64_t bucket_wait_ns(const struct vgpu_region_bucket *bucket, unsigned cores_pct);

/* Work of that cost was submitted. */
void bucket_charge(struct vgpu_region_bucket *bucket, uint64_t cost_ns, uint64_t now_ns);

/* It was not charged when it was submitted, or took so much longer, or shorter. */
void bucket_correct(struct vgpu_region_bucket *bucket, int64_t more_ns);
