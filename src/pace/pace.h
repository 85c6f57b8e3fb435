/*
 * When work may go to a GPU: the one gate that everything passes which submits some.
 *
 *     if (!pace_is_open())         a few loads: nearly always, that is all
 *             pace_ask             may it go?
 *             pace_wait            it may not: until it may
 *     (the driver)
 *
 * The gate keeps HAMi's contract, whatever the limits are: a process whose slot is suspended waits,
 * and so does every process of a slice whose recent_kernel is negative; what goes is shown to the
 * monitor, by 2 in recent_kernel and the time in last_kernel_time.
 *
 * Who submits is asked for nothing but to come by. A compute quota will need to know what is
 * submitted, and where: it comes as arguments of pace_ask, and its tenants find the gate never
 * open, so that they ask each time; the others pay nothing for it.
 *
 * Nothing here holds a lock, calls the driver, or touches errno. A wait is a sleep, and may be on
 * any thread; it ends as well when the region is lost. Thread-safe but for pace_forget.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "region.h"

/* How long after the words allow it a waiting thread goes on, at most. */
#define PACE_POLL_NS ((uint64_t)20000000)

/* For pace/ only, as is what is declared here of its variables: where the words are. Written when
 * the process attaches, or finds that it never will. */
struct pace_words {
	const int32_t *status;        /* enum vgpu_slot_status */
	const int32_t *recent_kernel; /* PACE_RECENT: open */
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

/* From now on the gate is that of the region, in which the process has a slot; of an onlooker's,
 * which shows nobody anything, it stands open. Costs nothing when it is so already. */
void pace_attach(struct region *region);

/* There is no slice: the gate stands open. */
void pace_open(void);

/* In a forked child: the gate is nobody's. It is never open, and lets pass whoever asks. */
void pace_forget(void);

/* Shows that work is submitted, and whether it may go: 0; -EAGAIN, it must wait; or -ESTALE or
 * -EUCLEAN for good, when the region is lost (region_why_lost). */
int pace_ask(void);

/* The same, after however long it takes: never -EAGAIN. */
int pace_wait(void);

/* The thread has waited for work: time went by, and its launches may come at another pace. */
static inline void pace_waited(void)
{
	pace_left = PACE_ANEW;
}
