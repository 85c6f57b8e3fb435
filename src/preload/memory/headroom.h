/* Functions for all hooks that take device memory: they find the device, make room, and refuse a
 * call. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "holding.h"
#include "log.h"
#include "trace.h"

/* Where the calling thread's allocations go. */
struct place {
	CUcontext context; /* its end frees the allocations */
	CUdevice device;
};

/*
 * Finds where the calling thread allocates, and whether a quota applies there (*ret_counted).
 * *ret_counted is also false if the driver will refuse the call, because no context is current or
 * the context has ended. A result other than CUDA_SUCCESS is the answer to the application.
 */
CUresult headroom_find(struct place *ret_place, bool *ret_counted);

/* Whether a quota applies to the device, whatever the context. Returns as headroom_find does. */
CUresult headroom_on(CUdevice device, bool *ret_counted);

/*
 * Before a refusal, tries to make room:
 *
 *   - managed blocks whose deferred free is due are freed;
 *   - the pools of the device give back memory that they keep for later;
 *   - the accounts are compared with NVML;
 *   - processes of the slice that were killed, and whose memory the device does not have back yet,
 *     are waited for, a second at most, if the steps above have made no room;
 *   - processes that were charged a guess for their first context are waited for, two seconds at
 *     most.
 *
 * The caller then tries once more in any case: another process may have made room meanwhile.
 */
void headroom_make(CUdevice device);

/* quota_holding_reserve, which tries to make room before it refuses. CUDA_SUCCESS: *ret_reservation
 * is the reservation. */
CUresult headroom_reserve_holding(enum holding_kind kind, const struct place *place,
				  uint64_t size_bytes, struct holding_reservation *ret_reservation);

/* Called after a charge has failed with `error`. If the region is lost or its lock is not free,
 * logs why the call `what` is refused, and returns the error for the application. Otherwise the
 * slice lacks room: returns CUDA_SUCCESS. */
CUresult headroom_blocked(const char *what, int error);

/* Logs why the call is refused, and returns the error for the application. error: the result of a
 * charge, or -EOVERFLOW if the driver took more than was reserved and the rest did not fit. */
CUresult headroom_refuse(CUdevice device, uint64_t size_bytes, int error);

/* For the trace: the call is refused. error: as in headroom_refuse. */
void headroom_trace_refusal(CUdevice device, uint64_t size_bytes, int error);
/* For the trace: the quota has room, and the driver has refused the allocation. */
void headroom_trace_driver(CUdevice device, uint64_t size_bytes);

void headroom_log(enum log_level level, const char *what, CUdevice device, uint64_t size_bytes);

/* For the log: an allocation of that size was made, or was freed. */
static inline void headroom_note_taken(CUdevice device, uint64_t size_bytes)
{
	if (log_wants(LOG_TRACE))
		headroom_log(LOG_TRACE, "allocated", device, size_bytes);
}
static inline void headroom_note_freed(CUdevice device, uint64_t size_bytes)
{
	if (log_wants(LOG_TRACE))
		headroom_log(LOG_TRACE, "freed", device, size_bytes);
}

/* For the trace: the driver's answer to an allocation that is within the quota. */
static inline void headroom_note_answer(CUdevice device, uint64_t size_bytes, CUresult result)
{
	if (trace_wants(TRACE_MEMORY) && result == CUDA_ERROR_OUT_OF_MEMORY)
		headroom_trace_driver(device, size_bytes);
}
