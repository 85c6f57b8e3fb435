/*
 * The state that all processes of the simulated machine share: what each holds of each GPU, and
 * until when each GPU is busy. GPUs are numbered as the machine has them; CUDA_VISIBLE_DEVICES is
 * not known here.
 */
#pragma once

#include "config.h"

/* What a process holds of one GPU. */
struct state_holding {
	uint64_t memory_bytes; /* contexts and ordinary device memory: NVML's figure for the process
				*/
	uint64_t managed_bytes; /* held on the device, in no process's figure */
	uint64_t away_bytes;    /* managed memory that lies on the host */
	uint64_t hidden_bytes;  /* the driver's own, in no process's figure */
	uint64_t contexts;
};

struct state_process {
	unsigned pid; /* in the pid namespace of who asks */
	uint64_t memory_bytes;
	unsigned busy_pct; /* of the last second, in which the GPU did its work */
};

/*
 * Maps the file, and makes it if nobody is using it. Returns 0, or a negative errno and a line on
 * stderr: -EBUSY when living processes use the file for other GPUs. Repeating it does nothing.
 */
int state_attach(void);
void state_detach(void);

/* Gives this process its slot, which it keeps until it ends. 0 or -EAGAIN when all are taken. */
int state_claim(void);

/* Adds to what this process holds. -ENOMEM, and nothing changes, when the GPU has not that much
 * left. */
int state_take(unsigned gpu, const struct state_holding *more);
/* Adds managed memory: as much as the GPU has left, which is returned; the rest stays the host's.
 */
uint64_t state_take_managed(unsigned gpu, uint64_t bytes);
void state_give(unsigned gpu, const struct state_holding *less);

/* Bytes in use by the living. */
uint64_t state_used_bytes(unsigned gpu);

/* The living processes with a context on the GPU that are in this one's pid namespace: how many,
 * and the first `max` of them. */
unsigned state_processes(unsigned gpu, struct state_process *ret_processes, unsigned max);

/* The part of the last second in which the GPU was at work for anybody, 0 to 100. */
unsigned state_busy_pct(unsigned gpu);

/*
 * Queues work on the GPU, behind all that is queued, to begin at not_before_ns at the earliest;
 * when it ends. Times are timeline_now()'s. Takes no lock and makes no system call, unless pages
 * move (VGPU_SIM_PAGE_MB_S).
 */
uint64_t state_queue(unsigned gpu, uint64_t not_before_ns, uint64_t duration_ns);
/* When the GPU has done all that is queued; it may be over. */
uint64_t state_busy_until(unsigned gpu);
/* How long the GPU had done this process's work at that time, not counting what is queued later. No
 * more than that, if other processes have work in between. */
uint64_t state_worked_ns(unsigned gpu, uint64_t at_ns);
/* Writes down that this process's work has the GPU in that time, for its utilisation. */
void state_busy(unsigned gpu, uint64_t from_ns, uint64_t to_ns);

/*
 * Collectives: rounds of a communicator, which is a number that all its ranks know. The caller
 * counts the rounds of each rank, from 0, and begins one when the one before is over.
 */
enum { STATE_RANKS_MAX = 64 };

/* For each rank, before its first round. -EINVAL for the number 0, -ENOSPC if there are too many.
 */
int state_communicator_join(uint64_t number, unsigned *ret_place);
/* A rank begins a round. If it is the last, the other ranks' processes have their bells rung. */
void state_collective_begin(unsigned place, unsigned ranks, uint64_t round, uint64_t begin_ns);
/* When the last rank began the round; UINT64_MAX until it has. */
uint64_t state_collective_begun(unsigned place, unsigned ranks, uint64_t round);

/* This process's bell. To wait for a ring from now on, ask for the bell before looking at what it
 * is rung for, and wait with that; span_ns: no longer than that, unless it is UINT64_MAX. */
uint32_t state_bell(void);
void state_bell_wait(uint32_t seen, uint64_t span_ns);
void state_bell_ring(void);

/*
 * Memory that several processes may hold. It is in the figure of one of them, of who shared it as
 * long as that one holds it; the GPU has it as long as anybody holds it or has a descriptor to it.
 */
struct state_object {
	unsigned gpu;
	uint64_t bytes;      /* of the GPU */
	uint64_t span_bytes; /* these two mean something to the driver only */
	uint64_t tag;
};

/* Makes an object, which this process holds, of memory that it has (memory_bytes of its holding).
 * -EAGAIN if there are too many. */
int state_share(const struct state_object *object, uint64_t *ret_id);
/* Holds it, once more if it does already. -ENOENT if it is gone. */
int state_join(uint64_t id, struct state_object *ret_object);
void state_leave(uint64_t id);
/* Makes an object that this process holds that big. -ENOMEM when the GPU has not that much left;
 * -EBUSY when it would shrink and is held by others too, or more than once. */
int state_resize(uint64_t id, uint64_t bytes);

/* A new descriptor, closed on exec, that keeps the object; or a negative errno. */
int state_export(uint64_t id);
/* Of which object it is. -EINVAL if it is none of those. */
int state_imported(int fd, uint64_t *ret_id);

/* In a forked child: forget the parent's slot and let go of its file. */
void state_forked(void);
