/*
 * The memory quota, as seen from one process of the slice. This component computes the cost of an
 * allocation, whether there is room for it, and the bytes that a free returns. It keeps the
 * accounts, and src/preload/ calls the driver. In the following order, no number of processes and
 * threads together can pass the limit:
 *
 *     quota_reserve   the worst that the allocation can cost is charged to the slice, or refused
 *     (the driver)    the region's lock is not held
 *     quota_settle    the bytes that it really took stay charged, the rest goes back; or
 *                     quota_cancel
 *
 *     quota_free_begin   the block leaves the accounts, its charge stays
 *     (the driver)
 *     quota_free_commit  the charge goes back; or quota_free_undo, if the driver refused
 *
 * allocation.h has these functions. pool.h has the same for memory that the driver keeps in pools,
 * holding.h for memory that has a handle, and context.h for contexts and code. export.h and
 * import.h are about memory that processes share, moved.h and variable.h about managed memory, and
 * compare.h about the comparison with NVML. This file has what all of them need.
 *
 * Devices are CUDA ordinals of this process; the slice knows them by UUID. Between quota_attach and
 * quota_forked everything is thread-safe. A thread takes a lock of this component before one of the
 * region. No thread holds two locks of tables of this component, except that the lock of moved.c,
 * variable.c or export.c may be held while the lock of account.c is taken.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"
#include "slice.h"
#include "trace.h"

/* A GPU as this process sees it. */
struct quota_gpu {
	char uuid[VGPU_UUID_LEN];
	int nvml_index; /* -1: not known */
};

/*
 * Opens the slice's region, takes a slot in it, and finds gpus[0 … count) (by CUDA ordinal) in it.
 * 0, or a negative errno with a fault; then nothing is attached, and the slice must be refused.
 */
int quota_attach(const struct slice *slice, const struct quota_gpu *gpus, unsigned count,
		 struct fault *fault);

/* In a forked child: nothing of the parent's is held or known any more, and nothing of it touched.
 */
void quota_forked(void);

bool quota_attached(void);

/* The region, with the process's slot, while quota_attached(): for src/pace, which uses it, too. */
struct region *quota_region(void);

/* The GPU of a process that sees just one; else -1. */
int quota_only_device(void);

/* The compute limits that the policy and the environment give a GPU, percent, 0 for none. */
struct quota_cores {
	unsigned policy_pct, policy_most_pct; /* the latter as in struct policy_device */
	unsigned env_pct;
};

/* The GPU's index in the region; -1: the GPU is not in the slice, and ret_cores is untouched. */
int quota_cores(int device, struct quota_cores *ret_cores);

/* Whether the GPU is in the slice at all. Contexts on others are refused. */
bool quota_has_device(int device);

uint64_t quota_limit(int device); /* bytes, 0: none; as of now */
/* The policy's limit of the GPU has changed. A region's limit of before_bytes becomes now_bytes. */
void quota_follow_policy(int device, uint64_t before_bytes, uint64_t now_bytes);
/* Likewise the credit that the GPU's bucket holds. */
void quota_follow_burst(int device, uint64_t before_ns, uint64_t now_ns);
uint64_t quota_used(int device); /* bytes that the slice is charged, also for dying processes */
/* Whether the slice holds more than its limit of the device. False without a limit. */
bool quota_is_above_limit(int device);
/* Counts an allocation that was refused for want of room. */
void quota_note_refusal(int device);
/* Both are called only if trace_wants(TRACE_MEMORY). quota_trace_refused: a call that wanted so
 * many bytes is refused. quota_trace_room: room of so many bytes was made, which took took_ns. */
void quota_trace_refused(int device, uint64_t bytes, enum trace_reason reason);
void quota_trace_room(int device, uint64_t room_bytes, uint64_t took_ns);
void quota_begin_exit(void); /* region_begin_exit; nothing where we are not attached */
void quota_reap(void);       /* clears the slots that are over; 1 to 2 us for each slot */
/* Waits, a second at most, for the device to have back what killed processes of the slice held. */
void quota_wait_dying(int device);
/* Waits, 2 s at most, for other processes of the slice to find what their first contexts cost. */
void quota_wait_guesses(int device);
/* Reports why the region is lost, after an error -ESTALE or -EUCLEAN of a function below. */
void quota_why_lost(struct fault *fault);

/* -- what ends -- */

/* quota_ending_begin is called before a driver call that frees charged memory, quota_ending_end
 * after the accounts have dropped that memory. In between, NVML's figure may lack what the accounts
 * still have, so no comparison lowers the accounts. Calls may be nested, also by several threads.
 * Functions that begin to free or to release something do this themselves. */
void quota_ending_begin(void);
void quota_ending_end(void);
