/*
 * The pacer measures with the driver's events. Each query about an event stands between
 * relaxed_begin and relaxed_end. Otherwise it would invalidate a capture that another thread makes
 * in global mode.
 *
 * Events are never destroyed here: the pacer uses them again, and they end with their context.
 */
#include "gpu_events.h"

#include "capture.h"
#include "cuda.h"
#include "log.h"
#include "policy_reload.h"
#include "pools.h"

static void *event_make(void *context)
{
	CUstreamCaptureMode mode;
	CUevent event = NULL;
	CUcontext popped;

	if (cuda.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
		return NULL;
	mode = relaxed_begin();
	if (cuda.cuEventCreate(&event, 0) != CUDA_SUCCESS)
		event = NULL;
	relaxed_end(mode);
	cuda.cuCtxPopCurrent_v2(&popped);
	return event;
}

static bool record(void *event, const struct pace_work *work)
{
	CUresult result = work->per_thread ? cuda.cuEventRecord_ptsz(event, work->stream)
					   : cuda.cuEventRecord(event, work->stream);

	return result == CUDA_SUCCESS;
}

static bool fence(void *event, const struct pace_work *work)
{
	return capture_fence(work->context, event);
}

static bool is_reached(void *event)
{
	CUstreamCaptureMode mode = relaxed_begin();
	CUresult result = cuda.cuEventQuery(event);

	relaxed_end(mode);
	return result == CUDA_SUCCESS;
}

/* H200, driver 580.159: a fence can be reached without a time. The time since the other event is
 * then that since 1970. */
#define NO_TIME_MS 1e9f

static enum pace_answer elapsed(void *begin, void *end, uint64_t *ret_ns)
{
	CUstreamCaptureMode mode = relaxed_begin();
	float ms = 0;
	CUresult result = cuda.cuEventElapsedTime(&ms, begin, end);

	relaxed_end(mode);
	if (result == CUDA_ERROR_NOT_READY)
		return PACE_NOT_YET;
	if (result != CUDA_SUCCESS || !(ms > -1 && ms < NO_TIME_MS))
		return PACE_UNKNOWN;
	*ret_ns = ms > 0 ? (uint64_t)((double)ms * 1e6)
			 : 0; /* two fences at the same time may be a little out of order */
	return PACE_TOOK;
}

static bool is_busy(const struct pace_work *work)
{
	CUstreamCaptureMode mode = relaxed_begin();
	CUresult result = work->per_thread ? cuda.cuStreamQuery_ptsz(work->stream)
					   : cuda.cuStreamQuery(work->stream);

	relaxed_end(mode);
	return result == CUDA_ERROR_NOT_READY;
}

static void say(const char *line)
{
	log_line(LOG_ERROR, "%s", line);
}

const struct pace_driver gpu_events_driver = {
	.event_make = event_make,
	.record = record,
	.fence = fence,
	.is_reached = is_reached,
	.elapsed = elapsed,
	.is_busy = is_busy,
	.refresh_limits = policy_reload_look,
	.say = say,
};
