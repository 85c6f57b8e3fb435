/*
 * Declarations that the files of src/turn/ share, and that no other component includes.
 *
 *     turn_file.c     the file: made, opened, validated; seats; which processes live
 *     grant.c         the turn word: hand-overs, the order of slices, and their wishes
 *     account.c       the slice's payments: its limit, its weighted time, its bursts
 *     turn_holder.c   the slice has the turn: it keeps the turn, or hands it over
 *     turn_waiter.c   another slice has the turn: the process waits, or takes the turn
 *     turn_doubt.c    how long a process waits before it launches without turns
 *     turn_gang.c     a gang's turns begin on all of its GPUs at the same time
 *     turn.c          the contract: may this process submit now; joining and leaving
 *
 * Memory orders. The words by which processes agree (the turn word, `present`, `idle_since`,
 * `active`) are read and written sequentially consistent: TURN_SEE, TURN_TELL and the builtins.
 * Everything else is a hint that is checked where it is used: TURN_LOAD and TURN_STORE.
 */
#pragma once

#include "clock.h"
#include "turn.h"

#define TURN_LOAD(field)         __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define TURN_STORE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELAXED)
#define TURN_ADD(field, value)   __atomic_add_fetch(&(field), value, __ATOMIC_RELAXED)
#define TURN_SEE(field)          __atomic_load_n(&(field), __ATOMIC_SEQ_CST)
#define TURN_TELL(field, value)  __atomic_store_n(&(field), value, __ATOMIC_SEQ_CST)
/* Stores `new` if the field has the value `old`, and returns true. Otherwise returns false, and
 * sets `old` to the field's value. */
#define TURN_CAS(field, old, new)                                                   \
	__atomic_compare_exchange_n(&(field), &(old), new, false, __ATOMIC_SEQ_CST, \
				    __ATOMIC_SEQ_CST)

#define NOBODY VGPU_TURNS_FREE /* as a slice */

/* -- constants: the unit, and what happens at half and at twice ------------------------------- */

/* ns of a turn. Half of the least: hand-overs cost a tenth of the device. Twice: a server's
 * requests wait for longer. Half of the most: two busy slices lose one more percent. Twice: each
 * waits for 40 ms. */
#define LENGTH_LEAST_NS (500 * NS_PER_US)
#define LENGTH_MOST_NS  (20 * NS_PER_MS)

/* ns of a turn under memory pressure at most, whatever the file says. Half: moving memory takes a
 * larger part of the time where much of it does not fit. Twice: a slice waits for 8 s, also where
 * another slice has written a length that is not true. */
#define PRESSURE_MOST_NS (4 * NS_PER_S)

/* The next slice begins to submit so many ns before the device is free, because a sleep may end
 * that late. Half: the device is idle at each hand-over. Twice: kernels of two slices are at the
 * device. */
#define LEAD_NS (60 * NS_PER_US)

/* ns before the end of its work at which a holder hands its turn over: by then, it knows when that
 * is. Half: the next slice may be woken too late. Twice: it knows less well. */
#define NOTICE_NS (1 * NS_PER_MS)

/* ns that the device takes to begin with another process's work. Half: the next slice's work
 * reaches the device before the last is over. Then the driver divides the device between the two
 * for some milliseconds. Twice: the device is idle for that long. */
#define CHANGE_NS (60 * NS_PER_US)

/* ns by which the begin of a turn is moved back at most when work was over too late. The two slices
 * shared the device in that time, so it is no measure of the error of the begin. */
#define LATER_MOST_NS ((int64_t)(2 * CHANGE_NS))

/* ns of idleness after which a turn is over. Half: a program that waits for each kernel loses its
 * turn between two. Twice: so much more of the device is lost after each burst. */
#define IDLE_NS (100 * NS_PER_US)

/* The same for a gang, which has to close when it loses a turn, and to wait for another date. Half:
 * a gang whose hosts wait for each step loses its turn between two. Twice: so much more of the
 * device is lost after a gang's last step. */
#define GANG_IDLE_NS (2 * NS_PER_MS)

/* A slice counts as idle so many ns, and a QUIET_PART of the time that its work should take, after
 * the end of that work, if its host has not launched, asked or waited meanwhile: the host does
 * something else. Half: no difference in random programs, but a host that launches each millisecond
 * loses its turn more often. Twice: so much more of the device is lost with each pause. */
#define QUIET_NS   (500 * NS_PER_US)
#define QUIET_PART 4

/* ns after the end of a turn at which a waiter takes the turn, if the holder has not handed it
 * over. The holder is in a call of the driver, which should not take longer. */
#define GRACE_NS (200 * NS_PER_US)

/* ns after the end of a turn at which a waiter launches although the device should still be busy,
 * or although the holder was not seen. Half: kernels of 20 ms meet the neighbour's. Twice: longer
 * kernels, and stopped processes, delay others for longer. */
#define SOFT_NS (20 * NS_PER_MS)

/* A turn word whose turn begins later than so many ns from now is invalid. */
#define AHEAD_MOST_NS (LENGTH_MOST_NS + SOFT_NS)

/* Turns of a gang last for at least so many times as long as the gang takes to close,
 * LENGTH_MOST_NS at most. Half: the gang loses an eighth more of its turns, as its devices are idle
 * in part while it closes. Twice: others wait longer. */
#define CLOSING_TIMES 4

/* A gang's wish is void when it is for a time further ahead, or longer ago, than so many ns. Half:
 * the gang's GPUs do not become free at the same time beside long work; a gang that is woken late
 * gets no turn. Twice: a stopped gang keeps others from the device for longer. */
#define WISH_AHEAD_NS (40 * NS_PER_MS)
#define WISH_LATE_NS  (2 * NS_PER_MS)

/* The longest time that a gang waits for its date because it has had more than others, ns. Half: a
 * gang with little weight gets more than its part. Twice: nonsense in the file delays it for
 * longer. */
#define OWED_MOST_NS (200 * NS_PER_MS)

/* ns after which a slice that wants nothing plays no part any more. */
#define PRESENT_NS (1 * NS_PER_S)

/* Bounds for the weighted time of a slice that wants the GPU again, at a weight of 100. It is at
 * most BEHIND_MOST_NS less than that of the slices that want the GPU, and at most LEAD_MOST_NS
 * more. After a pause that was shorter than a turn, it may be less by a turn of the other slice,
 * too (grant.c). */
#define BEHIND_MOST_NS ((int64_t)(20 * NS_PER_MS))
#define LEAD_MOST_NS   ((int64_t)(50 * NS_PER_MS))

/* The least weight of the slices without a quota, all together, where the quotas of others leave
 * less. Half: they wait for twice as long where the quotas of others add up to more than the GPU.
 * Twice: others get less than their quotas where these add up to the whole GPU. */
#define REST_LEAST 10

/* ns after which a process asks again. AGAIN_NS: the word changed each time that it tried.
 * POLL_NEXT_NS: its slice is next, and watches the holder. POLL_NS: otherwise. */
#define AGAIN_NS     (50 * NS_PER_US)
#define POLL_NEXT_NS (1 * NS_PER_MS)
#define POLL_NS      (5 * NS_PER_MS)

static inline uint64_t least_of(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t most_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* -- grant.c ---------------------------------------------------------------------------------- */

/* The turn word, taken apart. */
struct grant {
	uint64_t word;
	unsigned holder; /* a slice, or NOBODY, also where the word is invalid */
	bool is_shared;
	uint64_t begin_ns; /* checked: at most AHEAD_MOST_NS from now on; an invalid value becomes
			      one long ago */
};

struct grant grant_see(const struct turn *turn, uint64_t now_ns);

/* Changes the word from what `grant` has to a turn of that slice, or of NOBODY, from begin_ns on,
 * and wakes the slice. False: the word has changed meanwhile. */
bool grant_pass(struct turn *turn, const struct grant *grant, unsigned slice, uint64_t begin_ns);
/* Marks the holder's turn as shared, from now on. */
void grant_share(struct turn *turn, const struct grant *grant, uint64_t now_ns);
/* Marks the turn of this slice as not shared, as no other slice is present. False: one is. */
bool grant_unshare(struct turn *turn, const struct grant *grant);

/* Moves the begin of a turn that has not begun by so much, and not to before now. */
void grant_move(struct turn *turn, int64_t later_ns, uint64_t now_ns);

/* Which slice is next, of those that want the GPU and live, without that one; or NOBODY. */
unsigned grant_next(struct turn *turn, unsigned except, uint64_t now_ns);
/* The same for a turn that ends at end_ns, which may be ahead: a gang that wishes for that time is
 * next. */
unsigned grant_next_at(struct turn *turn, unsigned except, uint64_t end_ns, uint64_t now_ns);
/* The gang's wish, if it is not void; else 0. */
uint64_t grant_wish_ns(const struct turn *turn, unsigned slice, uint64_t now_ns);
/* How long the slice's turn lasts: its own least, or length_ns if that is more. */
uint64_t grant_length_ns(const struct turn *turn, unsigned slice, uint64_t length_ns);
#define GRANT_ENDLESS (UINT64_MAX / 4) /* the longest length of a turn, ns */
/* When the holder's turn of that length ends: at the wish of another gang, if that is sooner, but
 * not before the turn of a gang has had its least length. A wish_ns of 0 is no wish. */
uint64_t grant_end_ns(const struct turn *turn, const struct grant *grant, uint64_t length_ns,
		      uint64_t wish_ns);

/* As grant_next, but does not check that the slice lives: a guess that costs no system call. */
unsigned grant_guess(const struct turn *turn, unsigned except);

/* The wishes of all slices but one. */
struct others {
	bool are_present;     /* any wants the GPU, or wanted it in the last second */
	bool want;            /* any wants it now */
	uint64_t weight;      /* of those that are present, in all */
	uint64_t assured_pct; /* of those of them that have a share of their own, in all */
	unsigned rest;        /* how many have none, and divide what the quotas of others leave */
	uint64_t length_ns;   /* of a turn while those want the GPU, memory pressure included */
	uint64_t ahead_ns;    /* of work in flight while those are present */
	uint64_t wish_ns;     /* the earliest wish of a gang; 0: there is none */
	uint64_t wish_until;  /* until when that gang's turn lasts at least */
	uint64_t owed_ns;     /* after so long, each of those that want the GPU, or are between
				 steps, will have had as much as this slice, if this one has nothing
				 meanwhile */
};

/* Whether a slice that is idle since that time is a gang whose hosts may just wait for a step. Then
 * it keeps its turn for GANG_IDLE_NS. */
bool grant_is_between_steps(const struct turn *turn, unsigned slice, uint64_t idle_since,
			    uint64_t now_ns);

struct others grant_others(struct turn *turn, unsigned than, uint64_t now_ns);

/* The slices that are before the holder in the order by a shortest turn or more, by what the holder
 * had as its turn began. They have paused, and lend the turn to the holder. */
struct lenders {
	bool want;  /* any wants the GPU */
	bool pause; /* any wants nothing, for less than LENGTH_MOST_NS */
};

/* The lenders of this slice's turn. The slice had had_ns of weighted time as the turn began. */
struct lenders grant_lenders(const struct turn *turn, uint64_t had_ns, uint64_t now_ns);
/* The least length of a turn because of memory pressure, PRESSURE_MOST_NS at most; 0: none. */
uint64_t grant_pressure_ns(const struct turn *turn);

/* Says that this process wants the GPU; or that it does not, since that time. */
void grant_want(struct turn *turn, uint64_t now_ns);
void grant_idle(struct turn *turn, uint64_t since_ns);
/* This slice is not present any more. */
void grant_absent(struct turn *turn);
/* Takes a slice that does not answer out of those that want the GPU, until it asks again. */
void grant_drop(struct turn *turn, unsigned slice, uint64_t now_ns);

/* Whether another process of this slice wants the GPU or has work in flight. */
bool grant_has_peer(struct turn *turn);
/* The process has work until then: the slice's words say so. */
void grant_busy(struct turn *turn, uint64_t until_ns);

void grant_wake(struct turn *turn, unsigned slice);

static inline struct vgpu_turns_slice *turn_slice_at(const struct turn *turn, unsigned slice)
{
	return &turn->file.file->slice[slice];
}

static inline struct vgpu_turns_slice *turn_own(const struct turn *turn)
{
	return turn_slice_at(turn, turn->file.slice);
}

/* -- account.c -------------------------------------------------------------------------------- */

/* The slice begins to want the GPU after it was idle since that time. False: the gap was so short
 * that it counts as work. */
bool turn_account_wake(struct turn *turn, uint64_t idle_since, uint64_t now_ns);
/* Brings the slice's weighted time within bounds of the least of all slices. It may be lower by
 * allowance_ns beyond the bound. keeps_debt: it may be higher by any amount. */
void turn_account_keep_near(struct turn *turn, uint64_t least_weighted_ns, uint64_t allowance_ns,
			    bool keeps_debt);

bool turn_account_is_running(const struct turn *turn);
/* The slice has the turn from that time on, and pays for no time twice. False: it was known to have
 * the turn. */
bool turn_account_begin(struct turn *turn, uint64_t begin_ns, uint64_t now_ns);
/* The weighted time that the slice had as its turn began, at begin_ns; or less. */
uint64_t turn_account_had_ns(const struct turn *turn, uint64_t begin_ns);
/* The slice pays until that time, and goes on; or has the turn no more. */
void turn_account_pay(struct turn *turn, uint64_t until_ns, uint64_t now_ns);
void turn_account_end(struct turn *turn, uint64_t until_ns, uint64_t now_ns);
/* The slice used so much more than it paid, or less. */
void turn_account_correct(struct turn *turn, int64_t more_ns, uint64_t now_ns);
/* The slice used its turn up and wants another: its spells are longer than a turn. */
void turn_account_used_up(struct turn *turn);

/* For how long the slice may not go because of its limit: 0, or ns. */
uint64_t turn_account_wait_ns(const struct turn *turn, uint64_t now_ns);

/* -- turn_holder.c ---------------------------------------------------------------------------- */

static inline bool turn_is_mine(const struct turn *turn, const struct grant *grant)
{
	return grant->holder == turn->file.slice;
}

static inline struct turn_answer turn_go(enum turn_kind kind)
{
	return (struct turn_answer){.kind = kind};
}

static inline struct turn_answer turn_wait_for(uint64_t ns)
{
	return (struct turn_answer){.kind = TURN_WAIT,
				    .wait_ns = most_of(1, least_of(ns, TURN_ASK_AGAIN_NS))};
}

/* A process of the holder asks. True: *ret_answer is the answer. False: the word has changed, or
 * has to be looked at again. */
bool turn_holder_ask(struct turn *turn, const struct grant *grant, const struct others *others,
		     uint64_t now_ns, struct turn_answer *ret_answer);
/* Passes the word on, from the time at which the device should be free. False: the word has
 * changed.
 */
bool turn_holder_hand_over(struct turn *turn, const struct grant *grant, unsigned next,
			   uint64_t end_ns, uint64_t now_ns);
/* Another slice has taken the word: the turn of this slice ends when its work should be over. */
void turn_holder_notice_loss(struct turn *turn, uint64_t now_ns);

/* -- turn_waiter.c ---------------------------------------------------------------------------- */

/* A process of a slice without the turn asks. Returns as turn_holder_ask does. */
bool turn_waiter_ask(struct turn *turn, const struct grant *grant, uint64_t now_ns,
		     struct turn_answer *ret_answer);
/* Counts a wait for a turn that has ended, for the slice and for its histogram. */
void turn_waiter_count(struct turn *turn, uint64_t waited_ns);

/* -- turn_doubt.c ----------------------------------------------------------------------------- */

/* Whether the process goes without turns at present. */
bool turn_doubt_is_out(const struct turn *turn, uint64_t now_ns);
/* The process waits for a turn. Whether it should stop to believe in turns: it waits for too long,
 * or its slice is given too few. */
bool turn_doubt_is_due(struct turn *turn, const struct others *others, uint64_t now_ns);
/* The process goes without turns for a while. */
void turn_doubt_begin(struct turn *turn, uint64_t now_ns);
