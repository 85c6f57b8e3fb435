/*
 * When work may go to a GPU: the one gate that everything passes which submits some.
 *
 *     if (pace_is_open())      a few loads: without a compute quota, that is nearly always all
 *             (the driver)
 *     else
 *             pace_ask         may it go? with pace_wait, until it may
 *             pace_enter       may it go to that device, and how long not? Until it may
 *             (the driver)
 *             pace_leave       it is charged
 *
 * The gate keeps HAMi's contract, whatever the limits are: a process whose slot is suspended waits,
 * and so does every process of a slice whose recent_kernel is negative; what goes is shown to the
 * monitor, by 2 in recent_kernel and the time in last_kernel_time.
 *
 * Where a device of the slice has a compute quota, the gate is never open, and each launch is
 * charged to the device's bucket (bucket.h) what it has been seen to cost (costs.h). Where the
 * bucket is in debt it waits. Of short ones a thread may launch some at a time (lease.h). Others
 * who give turns, as a daemon that lets one tenant after the other have the GPU for itself, would
 * be asked in pace_enter, beside the bucket.
 *
 * Nothing here holds a lock while it waits, or touches errno. The driver is called by way of struct
 * pace_driver, to measure: two events around a stretch of work, and later the time between them.
 * A wait is a sleep, and may be on any thread; it ends as well when the region is lost.
 * Thread-safe but for pace_attach and pace_forget.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "costs.h"
#include "region.h"

/* How long after the words allow it a waiting thread goes on, at most. */
#define PACE_POLL_NS ((uint64_t)20000000)

/* For pace/ only, as is what is declared here of its variables: where the words are. Written when
 * the process attaches, or finds that it never will. */
struct pace_words {
	const int32_t *status;        /* enum vgpu_slot_status */
	const int32_t *recent_kernel; /* PACE_RECENT: open */
	const int32_t *recent_leased; /* the same, for who has a lease */
};
extern struct pace_words pace_words;

#define PACE_RECENT 2

/* Each thread's own, in its static block, one instruction away: the library is there when the
 * program starts. No other model does, they need a symbol of the loader's. */
#define PACE_OF_THREAD _Thread_local __attribute__((tls_model("initial-exec")))

/* How many launches of this thread are left until one looks at the clock. */
extern PACE_OF_THREAD int32_t pace_left;
#define PACE_ANEW (INT32_MIN / 2) /* the next one does, and it is begun with 1 again */

/* Whether work may go at once, and nothing is to be done about it. */
static inline bool pace_is_open(void)
{
	/* Pairs with the release where they are set: what was done before, is done. */
	const int32_t *recent_kernel = __atomic_load_n(&pace_words.recent_kernel, __ATOMIC_ACQUIRE);
	const int32_t *status = __atomic_load_n(&pace_words.status, __ATOMIC_RELAXED);

	return __builtin_expect(
		--pace_left >= 0 &&
			__atomic_load_n(recent_kernel, __ATOMIC_RELAXED) == PACE_RECENT &&
			__atomic_load_n(status, __ATOMIC_RELAXED) != VGPU_SLOT_SUSPENDED,
		true);
}

/* -- the quota -------------------------------------------------------------------------------- */

/* A device's compute quota, by where it comes from; percent, 0 or 100 and more: none. */
struct pace_quota {
	int index;           /* the device's, in the region; -1: it is not in the slice */
	unsigned policy_pct; /* always holds */
	unsigned own_pct;    /* holds where the region has none, and had none */
};

/* Whether the limits that are in the region hold (GPU_CORE_UTILIZATION_POLICY). */
enum pace_rule {
	PACE_RULE_SWITCH, /* while the monitor's utilization_switch is not 0 */
	PACE_RULE_FORCE,
	PACE_RULE_DISABLE,
};

/* Handles that stand for default streams: NULL, CU_STREAM_LEGACY, and this one; others are above.
 */
#define PACE_PER_THREAD_STREAM   ((uintptr_t)2) /* CU_STREAM_PER_THREAD */
#define PACE_LAST_DEFAULT_STREAM PACE_PER_THREAD_STREAM

/* What is submitted. */
struct pace_work {
	int device;      /* CUDA ordinal, negative: not known, and not held */
	void *context;   /* the stream's */
	void *stream;    /* as the driver is given it */
	bool per_thread; /* what its NULL means */
	struct cost_of what;
};

enum pace_answer { PACE_TOOK, PACE_NOT_YET, PACE_UNKNOWN };

/* The driver, as far as measuring needs it. No function may wait for the device, or disturb a
 * stream capture. */
struct pace_driver {
	void *(*event_make)(void *context); /* NULL: there is none to be had */
	bool (*record)(void *event, const struct pace_work *work); /* in the work's stream */
	/* Behind all that the work's context was given. False: that cannot be, now or ever. */
	bool (*fence)(void *event, const struct pace_work *work);
	/* Whether the device has come to the event; false, too, where nobody knows. A tenth of
	 * what the next takes. */
	bool (*is_reached)(void *event);
	/* Between two events of one stream, or two fences. PACE_UNKNOWN: never to be known. */
	enum pace_answer (*elapsed)(void *begin, void *end, uint64_t *ret_ns);
	/* Whether the stream has work that is not done. */
	bool (*is_busy)(const struct pace_work *work);
	/* While somebody waits, every 20 ms or so: limits may have changed. */
	void (*look)(void);
	/* How many contexts others than the slice have on the device, at most. */
	unsigned (*neighbours)(const struct pace_work *work);
};

/* -- the contract ----------------------------------------------------------------------------- */

/* From now on the gate is that of the region, in which the process has a slot; of an onlooker's,
 * which shows nobody anything, it stands open. quotas: VGPU_DEVICES_MAX of them, by CUDA ordinal.
 * The driver's functions stay. Costs nothing when it is so already. */
void pace_attach(struct region *region, const struct pace_quota *quotas, enum pace_rule rule,
		 const struct pace_driver *driver);

/* Whether it is so already, in this process. */
bool pace_is_attached(void);

/* The policy's quota of a device is another now. Where the region's was the policy's, that follows.
 */
void pace_set_policy(int device, unsigned policy_pct);

/* There is no slice: the gate stands open. */
void pace_open(void);

/* In a forked child: the gate is nobody's. It is never open, and lets pass whoever asks. */
void pace_forget(void);

/* The context is gone: what was being measured in it never will be. Before another can have its
 * address. */
void pace_end_context(const void *context);

/* Shows that work is submitted, and whether it may go: 0; -EAGAIN, it must wait; or -ESTALE or
 * -EUCLEAN for good, when the region is lost (region_why_lost). */
int pace_ask(void);

/* The same, after however long it takes: never -EAGAIN. */
int pace_wait(void);

/* What was not let through is no launch: it does not count for when the clock is looked at. */
static inline void pace_uncount(void)
{
	pace_left++;
}

/* The thread has waited for work, which pace_will_wait said before: time went by, and its launches
 * may come at another pace. */
void pace_waited(void);
/* The same where it only asked, and was told that something is not over. */
void pace_found_busy(void);

/* Whether any has, as of the last look: then pace_enter is to be asked. */
bool pace_asks_all(void);

/* Whether the device has a compute quota now; false for what is not in the slice. */
bool pace_is_limited(int device);

/* A piece of work on its way through. */
struct pace_pass {
	struct meter *meter; /* NULL: it is not charged */
	struct cost *cost;
	struct span *sample; /* NULL: it is not measured by itself */
	uint64_t cost_ns;    /* what it was known to cost before, or COST_UNKNOWN */
	uint64_t at_ns;      /* when it was let go */
	uint64_t turn_ns;    /* the meter's, if it is this one's turn, or 0 */
	bool idle;           /* the device had nothing to do for the process */
	bool goes;           /* whatever the bucket says: it would have gone before it was held for
			      * something else, or something may wait for it */
	bool held;           /* it would have been launched earlier */
};

/* Whether the thread has a lease, for something. */
bool pace_has_lease(void);

/* Whether a launch that is not being captured may go with the thread's lease, and need not be
 * entered then, nor left: it is charged with the next that is. The rest is as in struct pace_work;
 * the context may be NULL where there is one device. After pace_is_open. */
bool pace_lease(const void *context, const void *stream, bool per_thread,
		const struct cost_of *what);

/* Of work that is not being captured, before the driver gets it: returns when the quota lets it go.
 * 0, or what pace_ask says of a lost region. */
int pace_enter(struct pace_pass *ret_pass, const struct pace_work *work);

/* The driver took it (or did not). */
void pace_leave(struct pace_pass *pass, const struct pace_work *work, bool submitted);

/* The thread is about to wait for work, or has seen some that is not over. current: its context;
 * of_all: it waits for all that it has submitted, or its stream has. As the next, not while
 * anything is captured in the process. */
void pace_will_wait(const void *current, bool of_all);

/* Whether the thread gave something to that stream last: of the work, only that matters. */
bool pace_is_last(const struct pace_work *work);

/* The thread is about to submit a copy to or from the host. Of the work, the stream and its context
 * matter, which may be the current one. */
void pace_will_copy(const struct pace_work *copy, uint64_t bytes);

/* Before a stream or a context is destroyed, or a capture begins: what any thread launched to is
 * not touched any more, until it launches again. */
void pace_end_streams(void);
