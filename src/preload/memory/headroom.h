/* What all hooks that take device memory share: where it would be taken, and how it is refused. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "holding.h"
#include "log.h"
#include "trace.h"

/* Where the calling thread's allocations go. */
struct place {
	CUcontext context; /* which frees them when it ends */
	CUdevice device;
};

/*
 * Whether there is a quota to keep to where the calling thread allocates: *ret_counted. False also
 * where the driver will refuse by itself: no context, or one that is gone. Anything but
 * CUDA_SUCCESS is what the application is told.
 */
CUresult headroom_find(struct place *ret_place, bool *ret_counted);

/* The same for a device, whatever the context. */
CUresult headroom_on(CUdevice device, bool *ret_counted);

/* Before a refusal: has the pools of the device give back what they keep for later, compares the
 * books with NVML, and waits for processes of the slice that were killed and whose memory the
 * device does not have back yet, a second at most, and for those that were charged a guess for
 * their first context, two seconds at most. Try once more after it, whatever it found: another
 * process may have made room between the first try and this. */
void headroom_make(CUdevice device);

/* quota_hold_reserve, with room made before it is refused. CUDA_SUCCESS: there is a claim. */
CUresult headroom_hold(enum holding_kind kind, const struct place *place, uint64_t size_bytes,
		       struct holding_claim *ret_claim);

/* Says why nothing can be charged, and so `what` is refused, and returns what the driver says then;
 * CUDA_SUCCESS where there merely is no room. error: of a charge. */
CUresult headroom_blocked(const char *what, int error);

/* Says why, and returns what the driver says when there is no memory. error: of a charge, or
 * -EOVERFLOW: the driver took more than was reserved, and that did not fit. */
CUresult headroom_refuse(CUdevice device, uint64_t size_bytes, int error);

/* For the trace: the call is refused. error: as above. */
void headroom_trace_refusal(CUdevice device, uint64_t size_bytes, int error);
void headroom_trace_driver(CUdevice device, uint64_t size_bytes);

void headroom_log(enum log_level level, const char *what, CUdevice device, uint64_t size_bytes);

/* An allocation of that size is made, or freed: for the log. */
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

/* What the driver answered to an allocation that has its room in the slice: for the trace. */
static inline void headroom_note_answer(CUdevice device, uint64_t size_bytes, CUresult result)
{
	if (trace_wants(TRACE_MEMORY) && result == CUDA_ERROR_OUT_OF_MEMORY)
		headroom_trace_driver(device, size_bytes);
}
