#include "bucket.h"

#include "clock.h"
#include "words.h"

#define REFILL_NS (50 * NS_PER_US) /* what is not worth a write that others have to fetch */
#define PAUSE_NS  (10 * NS_PER_S)  /* more of time is more than the bucket holds, or nonsense */
#define BEHIND_NS (20 * NS_PER_MS) /* who read the clock before another did, and came after it */

/* The words say one thing together only when nobody changes them; a moment's error is of a moment's
 * work. */
int64_t bucket_level(const struct vgpu_region_bucket *bucket)
{
	return LOAD(bucket->credit) - LOAD(bucket->charged) - LOAD(bucket->corrected);
}

void bucket_refill(struct vgpu_region_bucket *bucket, unsigned cores_pct, uint64_t now_ns)
{
	uint64_t then_ns = LOAD(bucket->refilled);
	int64_t more, room;

	if (now_ns >= then_ns ? now_ns - then_ns < REFILL_NS : then_ns - now_ns < BEHIND_NS)
		return;
	if (!SWAP(bucket->refilled, then_ns, now_ns))
		return;       /* somebody else does it */
	if (now_ns < then_ns) /* the clock was set back, and the device is no busier for that */
		ADD(bucket->busy_until, now_ns - then_ns);
	if (!then_ns || now_ns < then_ns)
		return;
	more = (int64_t)(now_ns - then_ns < PAUSE_NS ? now_ns - then_ns : PAUSE_NS) * cores_pct /
	       100;
	room = BUCKET_FULL_NS - bucket_level(bucket);
	if (more > room)
		more = room > 0 ? room : 0;
	ADD(bucket->credit, more);
}

bool bucket_is_open(struct vgpu_region_bucket *bucket)
{
	int64_t level = bucket_level(bucket);

	if (level <= BUCKET_SHUT_NS) {
		STORE(bucket->shut, 1);
		return false;
	}
	if (!LOAD(bucket->shut))
		return true;
	if (level < BUCKET_OPEN_NS)
		return false;
	STORE(bucket->shut, 0);
	return true;
}

uint64_t bucket_wait_ns(const struct vgpu_region_bucket *bucket, unsigned cores_pct)
{
	int64_t lack = BUCKET_OPEN_NS - bucket_level(bucket);

	return lack > 0 ? (uint64_t)lack * 100 / cores_pct : 0;
}

void bucket_charge(struct vgpu_region_bucket *bucket, uint64_t cost_ns, uint64_t now_ns)
{
	uint64_t until_ns = LOAD(bucket->busy_until);

	/* Of two at once, one's time may be lost, to those who look on. */
	STORE(bucket->busy_until, (until_ns > now_ns ? until_ns : now_ns) + cost_ns);
	ADD(bucket->charged, (int64_t)cost_ns);
}

void bucket_correct(struct vgpu_region_bucket *bucket, int64_t more_ns)
{
	ADD(bucket->corrected, more_ns);
	ADD(bucket->busy_until, (uint64_t)more_ns); /* two's complement, so this goes both ways */
}
