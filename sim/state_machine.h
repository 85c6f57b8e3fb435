/*
 * The shared state file, for those who keep it: state_machine.c attaches to it, state.c,
 * state_objects.c and state_collective.c change it.
 *
 * Layout: struct machine, mapped by every process. A process that uses CUDA has a slot in it with
 * what it holds of each GPU (state.c); memory that several may hold is an object (state_objects.c).
 * What a GPU has in use is always the sum over both and is stored nowhere, so there is nothing that
 * could disagree.
 *
 * Locks, all of them open-file-description locks on bytes of the file. The kernel drops them when
 * the last descriptor of the description is closed, so at death, whatever kills the process:
 *
 *   LOCK_MUTEX       exclusive, while slots and objects are claimed, summed up, changed or reaped.
 *                    In a process the pthread mutex goes first: its threads share the description
 *   LOCK_USERS       shared, as long as a process is attached, or an exported descriptor open
 *   LOCK_SLOT + i    exclusive, as long as the owner of slot i lives
 *   LOCK_OBJECT + i  shared, as long as a descriptor is open that object i was exported by
 */
#pragma once

#include "state.h"

#include <stdatomic.h>
#include <sys/types.h>

enum {
	SLOTS = 1024,
	OBJECTS = 4096,
	LOCK_MUTEX = 0,
	LOCK_USERS = 1,
	LOCK_SLOT = 16,
	LOCK_OBJECT = LOCK_SLOT + SLOTS,
	HOLDER_WORDS = SLOTS / 64,
	BUSY_PERIOD_NS = 1 << 26, /* 67 ms */
	BUSY_PERIODS = 512,       /* 34 s: work that is queued for later than that is not counted */
	BUSY_WINDOW = 15,         /* periods in what NVML says: a second */
	COMMUNICATORS = 1024,     /* since the file was initialised */
	ROUNDS = 4,               /* of a communicator that have words of their own */
};

#define NOBODY UINT32_MAX

struct share {
	_Atomic uint64_t memory_bytes, managed_bytes, hidden_bytes, contexts;
	_Atomic uint64_t away_bytes;      /* managed memory that found no room on the GPU */
	_Atomic uint64_t resident_bytes;  /* what of all of it is there now (state_pages.c) */
	_Atomic uint64_t queued_until_ns; /* end of the last work that the process queued */
	_Atomic uint64_t queued_ns;       /* of all the work that it queued */
	/* How long its work has the GPU in each period of BUSY_PERIOD_NS: the period's number in
	 * the upper half, nanoseconds in the lower. A ring. */
	_Atomic uint64_t busy[BUSY_PERIODS];
};

struct slot {
	_Atomic uint32_t pid;        /* 0: free. Set last when a slot is claimed, cleared first */
	_Atomic uint64_t pid_space;  /* of which pid namespace it is: pids_space() */
	_Atomic uint64_t claimed_ns; /* what `busy` says of earlier periods is another process's */
	_Atomic uint32_t bell;       /* a futex: rung when something that is waited for happens */
	struct share shares[SIM_GPUS_MAX];
};

struct object {
	_Atomic uint64_t id;    /* 0: free. Set last, cleared first. A number times OBJECTS, plus
				   its place */
	_Atomic uint32_t payer; /* a slot that holds it, or NOBODY */
	struct state_object is;
	_Atomic uint64_t holders[HOLDER_WORDS]; /* a bit a slot */
};

struct round {
	_Atomic uint64_t begun;     /* by how many ranks, in all rounds that have these words */
	_Atomic uint64_t latest_ns; /* when the last of them began */
};

struct communicator {
	_Atomic uint64_t number;                 /* 0: free. Never free again */
	_Atomic uint64_t joined;                 /* ranks, at least as many as `slots` says */
	_Atomic uint32_t slots[STATE_RANKS_MAX]; /* of each rank's process, plus 1 */
	struct round rounds[ROUNDS];
};

struct machine {
	_Atomic uint64_t magic;             /* set last */
	uint64_t total_bytes[SIM_GPUS_MAX]; /* 0 for those that do not exist */
	_Atomic uint64_t busy_until_ns[SIM_GPUS_MAX];
	_Atomic uint64_t slots_seen; /* slots from here on have never been used */
	struct slot slots[SLOTS];
	_Atomic uint64_t objects_made; /* since the file was initialised */
	_Atomic uint64_t objects_seen; /* as slots_seen */
	struct object objects[OBJECTS];
	struct communicator communicators[COMMUNICATORS];
};

/* Written by attach, detach, claim and the fork handler, under the mutex; read by whoever is
 * attached. */
extern struct machine *state_machine;
extern int state_fd;
extern struct slot *state_own;

/* The mutex: LOCK_MUTEX, and among this process's threads. */
void state_lock(void);
void state_unlock(void);

/* F_RDLCK, F_WRLCK or F_UNLCK, at once or not at all: 0 or a negative errno. */
int state_byte_lock(int fd, short type, off_t byte);
bool state_byte_held_by_other(int fd, off_t byte); /* in doubt: yes */

static inline unsigned state_slots_seen(void)
{
	return (unsigned)atomic_load(&state_machine->slots_seen);
}

/* Makes the word at least that. */
void state_raise(_Atomic uint64_t *word, uint64_t value);

/* Frees the slots of the dead, and settles the objects. */
void state_reap_locked(void);
/* Brings this process's managed memory to the GPU, for work that it queues: the ns which that
 * takes. */
uint64_t state_pages_bring(unsigned gpu);
/* Bytes that slots and objects have of it. */
uint64_t state_used_locked(unsigned gpu);

/* The slot's owner is dead. */
void state_objects_leave_locked(unsigned slot);
/* Finds those another payer that have none, and lets those go that nobody has any more. */
void state_objects_settle_locked(void);
uint64_t state_objects_used_locked(unsigned gpu);
/* What the owner of the slot pays for. */
uint64_t state_objects_paid_locked(unsigned gpu, unsigned slot);
/* This process holds none: it has let go of the file, or is a forked child. */
void state_objects_forget(void);
