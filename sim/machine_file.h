/*
 * The shared state file, for the files that keep it: machine_file.c attaches to it;
 * machine_slots.c, machine_objects.c, machine_pages.c and machine_collective.c change it.
 *
 * Layout: struct machine, mapped by every process. A process that uses CUDA has a slot in it, with
 * what it holds of each GPU (machine_slots.c). Memory that several processes may hold is an object
 * (machine_objects.c). The memory in use on a GPU is the sum over slots and objects. It is not
 * stored, so it cannot disagree with them.
 *
 * Locks. All are open-file-description locks on bytes of the file. The kernel drops them with the
 * last descriptor of the open file, and so at the process's death at the latest:
 *
 *   LOCK_MUTEX       exclusive, while slots and objects are claimed, summed up, changed or reaped.
 *                    A thread takes the pthread mutex first, as the threads of a process share the
 *                    open file
 *   LOCK_USERS       shared, while a process is attached, or an exported descriptor is open
 *   LOCK_SLOT + i    exclusive, as long as the owner of slot i lives
 *   LOCK_OBJECT + i  shared, as long as a descriptor is open that object i was exported by
 */
#pragma once

#include "machine.h"
#include "sim_assert.h"

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
	BUSY_PERIODS = 512,       /* 34 s: work that is queued for later is not counted */
	BUSY_WINDOW = 15,         /* periods that NVML's utilisation is of: a second */
	COMMUNICATORS = 1024,     /* since the file was initialised */
	ROUNDS = 4,               /* rounds of a communicator that have words of their own */
};

#define NOBODY UINT32_MAX

struct share {
	_Atomic uint64_t memory_bytes, managed_bytes, hidden_bytes, contexts;
	_Atomic uint64_t away_bytes; /* managed memory that found no room on the GPU */
	_Atomic uint64_t
		resident_bytes; /* managed memory on the GPU at present (machine_pages.c) */
	_Atomic uint64_t queued_until_ns; /* end of the last work that the process queued */
	_Atomic uint64_t queued_ns;       /* of all the work that it queued */
	/* A ring: for how long the GPU does its work in each period of BUSY_PERIOD_NS. The upper
	 * half has the period's number, the lower half the nanoseconds. */
	_Atomic uint64_t busy[BUSY_PERIODS];
};

struct slot {
	_Atomic uint32_t pid;        /* 0: free. Set last when a slot is claimed, cleared first */
	_Atomic uint64_t pid_space;  /* the pid namespace of `pid`: pids_space() */
	_Atomic uint64_t claimed_ns; /* earlier periods in `busy` are of the slot's last owner */
	_Atomic uint32_t bell;       /* a futex: rung when an event happens that threads wait for */
	struct share shares[SIM_GPUS_MAX];
};

struct object {
	_Atomic uint64_t id;    /* 0: free. Set last, cleared first. A number times OBJECTS, plus
				   its place */
	_Atomic uint32_t payer; /* a slot that holds it, or NOBODY */
	struct machine_object is;
	_Atomic uint64_t holders[HOLDER_WORDS]; /* a bit for each slot */
};

struct round {
	_Atomic uint64_t begun;     /* begins of ranks, in all rounds that use these words */
	_Atomic uint64_t latest_ns; /* the latest of these begins */
};

struct communicator {
	_Atomic uint64_t number;                   /* 0: free. Never free again */
	_Atomic uint64_t joined;                   /* ranks, at least as many as `slots` says */
	_Atomic uint32_t slots[MACHINE_RANKS_MAX]; /* of each rank's process, plus 1 */
	struct round rounds[ROUNDS];
};

struct machine {
	_Atomic uint64_t magic;             /* set last */
	uint64_t total_bytes[SIM_GPUS_MAX]; /* 0 for those that do not exist */
	_Atomic uint64_t busy_until_ns[SIM_GPUS_MAX];
	_Atomic uint64_t peak_bytes[SIM_GPUS_MAX]; /* machine_peak(); written under the mutex */
	_Atomic uint64_t slots_seen;               /* slots from here on have never been used */
	struct slot slots[SLOTS];
	_Atomic uint64_t objects_made; /* since the file was initialised */
	_Atomic uint64_t objects_seen; /* as slots_seen */
	struct object objects[OBJECTS];
	struct communicator communicators[COMMUNICATORS];
};

/* Attach, detach, claim and the fork handler write it, under the mutex. Attached processes read it.
 */
extern struct machine *machine;
extern int machine_fd;
extern struct slot *machine_own;

/* Takes the pthread mutex and LOCK_MUTEX. */
void machine_lock(void);
void machine_unlock(void);

/* Sets a lock of the type F_RDLCK, F_WRLCK or F_UNLCK, without waiting. 0, or a negative errno. */
int machine_byte_lock(int fd, short type, off_t byte);
bool machine_byte_held_by_other(int fd, off_t byte); /* true also if the kernel does not say */

static inline unsigned machine_slots_seen(void)
{
	return (unsigned)atomic_load(&machine->slots_seen);
}

/* Raises the word to `value`, if it is lower. */
void machine_raise(_Atomic uint64_t *word, uint64_t value);

/* Frees the slots of dead processes, and calls machine_objects_settle_locked. */
void machine_reap_locked(void);
/* Brings this process's managed memory to the GPU, for work that it queues. Returns the ns that
 * this takes. */
uint64_t machine_pages_bring(unsigned gpu);
/* The bytes of the GPU that slots and objects have. */
uint64_t machine_used_locked(unsigned gpu);
/* Called after these bytes have grown: machine_peak() is raised to what living processes have. */
void machine_note_peak_locked(unsigned gpu);

/* The slot's owner is dead: its holds on objects end. */
void machine_objects_leave_locked(unsigned slot);
/* Gives each object without a payer another one, and frees the objects that no process holds or has
 * a descriptor of. */
void machine_objects_settle_locked(void);
uint64_t machine_objects_used_locked(unsigned gpu);
/* The bytes of the objects whose payer is the slot's owner. */
uint64_t machine_objects_paid_locked(unsigned gpu, unsigned slot);
/* This process holds no object: it has detached from the file, or is a forked child. */
void machine_objects_forget(void);
