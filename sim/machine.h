/*
 * The state that all processes of the simulated machine share: what each holds of each GPU, and
 * until when each GPU is busy. GPUs are numbered as the machine has them; CUDA_VISIBLE_DEVICES is
 * not known here.
 */
#pragma once

#include "config.h"

/* What a process holds of one GPU. */
struct machine_holding {
	uint64_t memory_bytes;  /* contexts and device memory: NVML's figure for the process */
	uint64_t managed_bytes; /* on the device, in no process's figure */
	uint64_t away_bytes;    /* managed memory on the host */
	uint64_t hidden_bytes;  /* the driver's own, in no process's figure */
	uint64_t contexts;
};

struct machine_process {
	unsigned pid; /* in the caller's pid namespace */
	uint64_t memory_bytes;
	unsigned busy_pct; /* the part of the last second in which the GPU did its work */
};

/*
 * Maps the file, and initialises it if no process is using it. Returns 0, or a negative errno and a
 * line on stderr: -EBUSY, if living processes use the file for other GPUs. A second call does
 * nothing.
 */
int machine_attach(void);
void machine_detach(void);

/* Gives this process its slot, which it keeps until it ends. 0; or -EAGAIN, if all are taken. */
int machine_claim(void);

/* Adds to what this process holds. -ENOMEM, if the GPU does not have that much left; then nothing
 * changes. */
int machine_take(unsigned gpu, const struct machine_holding *more);
/* Adds managed memory. Returns how much of it the GPU has room for; the rest is on the host. */
uint64_t machine_take_managed(unsigned gpu, uint64_t bytes);
void machine_give(unsigned gpu, const struct machine_holding *less);

/* Bytes in use by living processes. */
uint64_t machine_used_bytes(unsigned gpu);
/* The highest machine_used_bytes() since the last call, or since the file was initialised. */
uint64_t machine_peak(unsigned gpu);

/* Lists living processes with a context on the GPU in this process's pid namespace, `max` of them
 * at most. Returns how many there are. */
unsigned machine_processes(unsigned gpu, struct machine_process *ret_processes, unsigned max);

/* The part of the last second in which the GPU was busy, 0 to 100. */
unsigned machine_busy_pct(unsigned gpu);

/*
 * Queues work on the GPU, after all work that is queued, to begin at not_before_ns at the earliest.
 * Returns when it ends. Times are those of timeline_now(). Takes no lock and makes no system call,
 * unless pages move (VGPU_SIM_PAGE_MB_S).
 */
uint64_t machine_queue(unsigned gpu, uint64_t not_before_ns, uint64_t duration_ns);
/* The time at which the GPU has done all queued work. It may have passed. */
uint64_t machine_busy_until(unsigned gpu);
/* For how long the GPU had done this process's work at that time, without work that is queued
 * later. It may be less, if other processes have work in between. */
uint64_t machine_worked_ns(unsigned gpu, uint64_t at_ns);
/* Records for the utilisation that the GPU does this process's work in that time. */
void machine_busy(unsigned gpu, uint64_t from_ns, uint64_t to_ns);

/*
 * Collectives are rounds of a communicator, which is a number that all its ranks know. The caller
 * counts the rounds of each rank, from 0, and begins a round when the rank's last round is over.
 */
enum { MACHINE_RANKS_MAX = 64 };

/* Called for each rank before its first round. -EINVAL for the number 0; -ENOSPC, if there are too
 * many communicators. */
int machine_communicator_join(uint64_t number, unsigned *ret_place);
/* A rank begins a round. If it is the last one, it rings the bells of the other ranks' processes.
 */
void machine_collective_begin(unsigned place, unsigned ranks, uint64_t round, uint64_t begin_ns);
/* The time at which the last rank began the round; UINT64_MAX before that. */
uint64_t machine_collective_begun(unsigned place, unsigned ranks, uint64_t round);

/* This process's bell, a futex word. A thread reads machine_bell, looks for work, and then waits
 * with the value that it read: so it misses no ring in between. span_ns: the longest wait;
 * UINT64_MAX: for ever. */
uint32_t machine_bell(void);
void machine_bell_wait(uint32_t seen, uint64_t span_ns);
void machine_bell_ring(void);

/*
 * Memory that several processes may hold. It is in the figure of one of them: of the process that
 * shared it, as long as that process holds it. It is on the GPU as long as a process holds it or
 * has a descriptor of it.
 */
struct machine_object {
	unsigned gpu;
	uint64_t bytes;      /* of the GPU */
	uint64_t span_bytes; /* this and the next have a meaning for the driver only */
	uint64_t tag;
};

/* Makes an object of memory that this process has (memory_bytes of its holding), and that it then
 * holds. -EAGAIN, if there are too many objects. */
int machine_share(const struct machine_object *object, uint64_t *ret_id);
/* This process holds the object, or holds it once more. -ENOENT, if the object is gone. */
int machine_join(uint64_t id, struct machine_object *ret_object);
void machine_leave(uint64_t id);
/* Changes the size of an object that this process holds. -ENOMEM, if the GPU does not have that
 * much left; -EBUSY, if it would shrink and is held by other processes or more than once. */
int machine_resize(uint64_t id, uint64_t bytes);

/* A new descriptor, closed on exec, that keeps the object; or a negative errno. */
int machine_export(uint64_t id);
/* The object that the descriptor is of. -EINVAL, if it is another descriptor. */
int machine_imported(int fd, uint64_t *ret_id);

/* In a forked child: forgets the parent's slot, and closes its file. */
void machine_forked(void);
