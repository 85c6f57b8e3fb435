/*
 * Turns on a GPU between the slices that want it at the same time. A turn is the right of one slice
 * to submit work. It lasts from its begin until the work is over, and the slice pays for that wall
 * time, whatever the kernels are. docs/design/turns.md has the states and the formulas.
 *
 * The contract, for each process of a slice and each GPU:
 *
 *     turn_join        once
 *     turn_is_alone    before each launch: one load; true: launch, with no other call
 *     turn_ask         else: the launch may go, or has to wait, and for how long
 *     turn_sleep       waits for that long, or until the process is woken
 *     turn_submitted   after each launch for which turn_is_alone was false
 *     turn_give_way    instead of turn_ask, while another process of the slice has the device
 *     turn_over        whenever the process sees that all of its work is over
 *     turn_idle        the same, and it submits nothing now
 *     turn_leave       at the process's end; without it, the kernel says that it is dead
 *
 * The caller passes all times, which are clock_steady_ns(), so a test can pass its own. Only
 * turn_sleep and the functions that open the file wait. No function takes a lock, and the component
 * has no thread. All but turn_join, turn_leave and turn_forget may be called by several threads.
 *
 * What others can do to a process. Slices do not trust each other, and each can write anything into
 * the file at any time. The limit and the account of a slice are in memory of its own (struct
 * turn_account), so others cannot change them. A process doubts if it waits for a turn for longer
 * than a bound, or if its slice has had less than half of its part after a second of waits or more.
 * It then launches without turns for TURN_DOUBT_NS, and for twice as long the next time. The bound
 * depends on the weights of the slices. It is TURN_WAIT_MOST_NS at most, plus eight turns under
 * memory pressure. While a process doubts, the driver divides the GPU, and the caller enforces the
 * limit by itself.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "turn_file.h"
#include "vgpu_region.h"

#define TURN_WAIT_MOST_NS    ((uint64_t)2000000000)  /* for a turn; limits and pressure are extra */
#define TURN_DOUBT_NS        ((uint64_t)1000000000)  /* without turns, after one such wait */
#define TURN_DOUBT_MOST_NS   ((uint64_t)64000000000) /* after many */
#define TURN_ASK_AGAIN_NS    ((uint64_t)20000000)    /* the longest wait_ns of an answer */
#define TURN_CREDIT_NS       ((int64_t)20000000) /* of GPU time: an idle slice saves at most that, */
#define TURN_CREDIT_WAITS_NS ((int64_t)200000000) /* and one that waits for turns */
#define TURN_DEBT_NS         ((int64_t)10000000)  /* at which a slice stops in its turn */

/* A slice's payments and its limit. They are in memory that the processes of the slice share and no
 * other slice can write, or in a process's own memory if the slice has one process. They are zeros
 * at first. */
struct turn_account {
	uint64_t held_from;  /* the slice has the turn, and has paid for it until then; 0: it has
			      * not. Atomic, as the next */
	uint64_t ready_at;   /* when the slice has neither credit nor debt under its limit */
	uint64_t busy_until; /* when all that the slice has submitted should be over */
	uint64_t paid_until; /* no time before that is paid for again */
	uint64_t paid_ns;    /* what it paid, in all */
};

struct turn_slice {
	uint64_t key;       /* identifies the slice; not 0 */
	unsigned weight;    /* 1 to 100; 0: the rest that the weights of others leave of 100 */
	unsigned limit_pct; /* 1 to 100; 100: no limit */
	struct turn_account *account;    /* lives until turn_leave or turn_forget */
	struct vgpu_region_waits *waits; /* likewise; NULL: waits are not counted */
};

/* A process's part in the turns of a GPU. Atomic: other threads may read and write each field. */
struct turn {
	struct turn_file file;
	struct turn_account *account;
	struct vgpu_region_waits *waits; /* NULL: waits are not counted */
	unsigned weight, limit_pct;
	bool takes_rest;     /* its weight is what those of others leave */
	bool is_idle;        /* it has reported that, */
	bool is_resting;     /* or it wants nothing for now, although it has work to do */
	bool is_waiting;     /* a thread of the process waits for its work */
	bool is_lost;        /* the file is */
	bool is_first;       /* no other process of the slice lived when this one joined */
	uint64_t waits_from; /* since when it has waited for a turn; 0: it does not */
	uint64_t asked_at;   /* it asked last */
	uint64_t waited_ns;  /* for how long it waited for turns, and what its slice had paid when
			      * that began to count */
	uint64_t paid_before;
	uint64_t told_until; /* until when the device is busy, as it announced with its last turn */
	uint64_t told_moved; /* the file's moved_ns then */
	uint64_t asked_life; /* when it last asked whether the holder lives */
	uint64_t rang;       /* when it last woke another slice as it became idle */
	uint64_t closing_ns; /* a gang's, which takes so long to close; 0: it is no gang's */
	uint64_t doubt_until; /* without turns until then */
	uint64_t doubt_ns;    /* for how long the last time */
};

/* 0, or a negative errno with a fault: then there are no turns for this process, and *ret_turn is
 * not to be used. Waits for 0.2 s at most. */
int turn_join(struct turn *ret_turn, const char *path, const struct turn_slice *slice,
	      struct fault *fault);

/* The same in a file that vgpud has handed over; takes the descriptor, also where it fails. */
int turn_join_offered(struct turn *ret_turn, int fd, const struct turn_slice *slice,
		      struct fault *fault);

/* Another weight or limit, which hold from now on; as in struct turn_slice. */
void turn_set(struct turn *turn, unsigned weight, unsigned limit_pct);

/* Whether the process takes turns: the file is there, and it does not doubt. */
bool turn_takes_part(const struct turn *turn, uint64_t now_ns);

/* Whether the slice has the turn, and no other slice is present. */
static inline bool turn_is_own(const struct turn *turn)
{
	uint64_t word = __atomic_load_n(&turn->file.file->header.turn, __ATOMIC_RELAXED);

	return (word & (VGPU_TURNS_HOLDER | VGPU_TURNS_SHARED)) == turn->file.slice + 1;
}

/*
 * Whether no other slice is present: one load. If so, the caller launches without turn_ask, may
 * leave out turn_submitted, and enforces the slice's limit by itself. The slice pays nothing for
 * the turn.
 */
static inline bool turn_is_alone(const struct turn *turn)
{
	return turn_is_own(turn) && !__atomic_load_n(&turn->is_idle, __ATOMIC_RELAXED);
}

/*
 * Whether another slice is present, so that a launch that waits for something else should ask for a
 * turn. Right after turn_ask has said TURN_ALONE, this is false, unless another slice has come.
 */
static inline bool turn_has_rival(const struct turn *turn, uint64_t now_ns)
{
	return !turn_is_own(turn) && turn_takes_part(turn, now_ns);
}

/* Whether the slice has said from when on it wants the turn (turn_wish). */
bool turn_has_wish(const struct turn *turn);

/* Whether another slice, which has that key, wants the device, or did in the last second. Takes a
 * system call if so. */
bool turn_has_slice(const struct turn *turn, uint64_t key);

/* Whether the slice has the word: it has its turn, or the turn that begins next. */
static inline bool turn_has_word(const struct turn *turn)
{
	uint64_t word = __atomic_load_n(&turn->file.file->header.turn, __ATOMIC_RELAXED);

	return (word & VGPU_TURNS_HOLDER) == turn->file.slice + 1;
}

enum turn_kind {
	TURN_ALONE, /* launch; the caller enforces the limit: no other slice is present, or the file
		       is unusable */
	TURN_MINE,  /* launch; the turns enforce the limit */
	TURN_WAIT,  /* ask again after wait_ns */
};

struct turn_answer {
	enum turn_kind kind;
	uint64_t wait_ns; /* 1 to TURN_ASK_AGAIN_NS */
	bool by_limit;    /* of TURN_WAIT: the slice is over its limit, whatever others want */
	uint32_t bell;    /* for turn_sleep */
};

/* Whether a launch of this process is admitted now. If the process has work in flight that it
 * launched while alone, it calls turn_submitted first. */
struct turn_answer turn_ask(struct turn *turn, uint64_t now_ns);

/* Sleeps for answer->wait_ns, or until a turn is given to the slice. */
void turn_sleep(struct turn *turn, const struct turn_answer *answer);

/*
 * The process has submitted work. busy_until_ns: when the device should have finished all of it, if
 * the device works for this process alone from now on. This function adds the rest of another
 * slice's turn. Call it again with a better figure whenever there is one.
 */
void turn_submitted(struct turn *turn, uint64_t busy_until_ns, uint64_t now_ns);

/* The host begins a wait for its work: its slice is not idle before it says so (turn_over,
 * turn_idle). A host that neither waits nor looks does something else, and its slice counts as idle
 * soon after its work should be over. */
void turn_will_wait(struct turn *turn, uint64_t now_ns);
/* The wait has ended. */
void turn_waited(struct turn *turn, uint64_t now_ns);
/* The host has asked whether work is over. */
void turn_looked(struct turn *turn, uint64_t now_ns);

/*
 * The turns of a gang (docs/design/gang_turns.md), which has to have its turns on several GPUs at
 * the same time.
 *
 *     turn_set_gang  the slice's turns are a gang's, which takes closing_ns until all of its work
 *                    is over. A turn ends that long before its end, and lasts for several times as
 *                    long. 0: they are no gang's
 *     turn_date      when this GPU could be the slice's, at the earliest; about 0.2 s ahead at most
 *     turn_wish      the gang has no work in flight. It wants no turn before from_ns, and the next
 *                    turn then. Others are through with their work at that time. 0: it wants no
 *                    turn. If `counts` is true, this wait is one for a turn, and nothing else
 *                    makes the gang wait until from_ns
 *
 * At from_ns, the gang calls turn_ask on each GPU. A wish holds until the turn begins or is 2 ms
 * late. The calls of one GPU are made by any process of the slice.
 */
void turn_set_gang(struct turn *turn, uint64_t closing_ns);
uint64_t turn_date(struct turn *turn, uint64_t now_ns);
void turn_wish(struct turn *turn, uint64_t from_ns, bool counts, uint64_t now_ns);

/* Another process of the slice has the device, and this one has no work in flight and wants none
 * until it asks again. */
void turn_give_way(struct turn *turn, uint64_t now_ns);

/* All of the process's work was over at ended_ns. A process that waits for a turn should look once
 * in turn_ask's wait_ns. The next turns begin later or earlier by the error of busy_until_ns. */
void turn_over(struct turn *turn, uint64_t ended_ns, uint64_t now_ns);

/* The same, and the process submits nothing now. */
void turn_idle(struct turn *turn, uint64_t ended_ns, uint64_t now_ns);

/* Looks whether the file still is there: some 2 us. False: it is lost, turn_ask says TURN_ALONE
 * from now on, and the caller may leave and join again. */
bool turn_watch(struct turn *turn);

void turn_leave(struct turn *turn, uint64_t now_ns);
/* The same while other threads may be at work in the turn: its memory stays until turn_forget, and
 * turn_ask says TURN_ALONE. */
void turn_retire(struct turn *turn, uint64_t now_ns);
void turn_forget(struct turn *turn); /* in a forked child */
