/*
 * The gate: HAMi's words, and the clock.
 *
 * The words. A monitor writes recent_kernel every few seconds: it counts down what it finds there,
 * to see whether the slice is at work; -1 blocks the slice while another, of higher priority, is,
 * and 0 lets it go on. So what is not negative is made PACE_RECENT again, once for each time that
 * it was counted down, and never in the place of a -1 that came in between. A slot's status is the
 * monitor's too, while the process is alive.
 *
 * The clock. last_kernel_time is true to a second, without reading a clock at each launch, which
 * would cost more than all the rest: a thread looks at every 64th, and at every single one when it
 * launches rarely (more than LOOK_NS apart), after it has waited for its work, and when the words
 * made it ask. What is left is a thread that launches fast, pauses without waiting for anything,
 * and goes on: its first launches are shown when there have been 64, or at the monitor's next turn.
 * With the same look goes one at the file, so that the region is not touched long after it was
 * truncated (region/watch.c).
 *
 * Where a device has a compute quota, each launch has to ask, but those that a lease is for: the
 * words are then ones that never let it through. Whether one has is looked at with the clock.
 *
 * Who waits polls: monitors store words, and wake nobody. A region that is lost, or is no region
 * any more, ends every wait; the gate is shut then, and whoever asks is told.
 */
#include <errno.h>

#include "clock.h"
#include "pace.h"
#include "pacer.h"
#include "sys.h"
#include "words.h"

#define LOOK_MOST 64               /* launches from one look at the clock to the next */
#define LOOK_NS   (10 * NS_PER_MS) /* time that may go by in between */
#define NOTE_NS   (NS_PER_S / 4)   /* how old last_kernel_time may be when it is looked at */

/* What the words are while they are in no region. */
static const int32_t nobody_suspended = VGPU_SLOT_RUNNING;
static const int32_t always = PACE_RECENT, never;

struct pace_words pace_words = {&nobody_suspended, &never, &never};
PACE_OF_THREAD int32_t pace_left;

static struct region *joined; /* NULL: none. Written by pace_attach and pace_forget */
static bool asks_all;         /* some device has a quota; atomic */
static uint64_t noted_ns;     /* when last_kernel_time was seen to; atomic, any thread */

static PACE_OF_THREAD uint64_t looked_ns;
static PACE_OF_THREAD int32_t looking_every; /* 1 to LOOK_MOST; 0: not yet */

/* A thread that launches meanwhile may see the new status with the old recent_kernel: it asks, or
 * goes, as it would have done just before. */
static void set_words(const int32_t *status, const int32_t *recent_kernel,
		      const int32_t *recent_leased)
{
	STORE(pace_words.status, status);
	__atomic_store_n(&pace_words.recent_leased, recent_leased, __ATOMIC_RELEASE);
	__atomic_store_n(&pace_words.recent_kernel, recent_kernel, __ATOMIC_RELEASE);
}

void pace_open(void)
{
	set_words(&nobody_suspended, &always, &never);
}

static void set_words_of(const struct region *region)
{
	const struct vgpu_hami_region *hami = &region->file->hami;
	bool limited = pacer_any_limit();

	STORE(asks_all, limited);
	if (!limited)
		pacer_lift();
	set_words(&hami->slots[region->slot].status, limited ? &never : &hami->recent_kernel,
		  limited ? &hami->recent_kernel : &never);
}

bool pace_asks_all(void)
{
	return LOAD(asks_all);
}

void pace_attach(struct region *region, const struct pace_quota *quotas, enum pace_rule rule,
		 const struct pace_driver *driver)
{
	if (__atomic_load_n(&joined, __ATOMIC_ACQUIRE) == region)
		return;
	if (region->slot < 0 || !region->writable) {
		pace_open();
		return;
	}
	pacer_attach(region, quotas, rule, driver);
	__atomic_store_n(&joined, region, __ATOMIC_RELEASE); /* pairs with the loads of it */
	set_words_of(region);
}

bool pace_is_attached(void)
{
	return __atomic_load_n(&joined, __ATOMIC_ACQUIRE) != NULL;
}

void pace_forget(void)
{
	set_words(&nobody_suspended, &never, &never);
	pacer_forget();
	joined = NULL;
	asks_all = false;
	noted_ns = 0;
	pace_left = 0;
}

/* What the words say, 0 or -EAGAIN; and ours to the monitor. */
static int read_words(struct region *region)
{
	struct vgpu_hami_region *hami = &region->file->hami;
	int32_t recent = LOAD(hami->recent_kernel);

	if (LOAD(hami->slots[region->slot].status) == VGPU_SLOT_SUSPENDED)
		return -EAGAIN;
	while (recent >= 0 && recent != PACE_RECENT)
		if (__atomic_compare_exchange_n(&hami->recent_kernel, &recent, PACE_RECENT, false,
						__ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return 0;
	return recent < 0 ? -EAGAIN : 0;
}

static void note_time(struct region *region, uint64_t now_ns)
{
	int64_t *shown = &region->file->hami.last_kernel_time, now_s;

	if (now_ns - LOAD(noted_ns) < NOTE_NS)
		return;
	STORE(noted_ns, now_ns);
	now_s = clock_unix_s();
	if (LOAD(*shown) != now_s)
		STORE(*shown, now_s);
}

/* When this thread looks next. */
static void plan_look(uint64_t now_ns)
{
	if (pace_left < -1 || now_ns - looked_ns > LOOK_NS || !looking_every)
		looking_every = 1;
	else if (looking_every < LOOK_MOST)
		looking_every *= 2;
	looked_ns = now_ns;
	pace_left = looking_every - 1;
}

static int lose(int error)
{
	set_words(&nobody_suspended, &never, &never);
	looked_ns = 0;
	return error;
}

/* The region and the time are looked at when the clock has ticked since this thread did. */
int pace_ask(void)
{
	struct region *region = __atomic_load_n(&joined, __ATOMIC_ACQUIRE);
	uint64_t now_ns = clock_coarse_ns();
	bool ticked = now_ns != looked_ns;
	int error;

	plan_look(now_ns);
	if (!region)
		return 0;
	if (ticked && !region_is_there(region))
		return lose(region_examine(region));
	if (ticked && pacer_any_limit() != LOAD(asks_all))
		set_words_of(region);
	error = read_words(region);
	if (ticked && !error)
		note_time(region, now_ns);
	return error;
}

/* Looks at the file each time, however often others do: a wait is long. */
int pace_wait(void)
{
	struct region *region = __atomic_load_n(&joined, __ATOMIC_ACQUIRE);
	int error;

	while ((error = pace_ask()) == -EAGAIN) {
		sys_sleep_ns(PACE_POLL_NS);
		error = region_examine(region);
		if (error)
			return lose(error);
	}
	return error;
}
