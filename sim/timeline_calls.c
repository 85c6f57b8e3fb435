/*
 * The driver's functions about streams and events, over timeline.c.
 */
#include "sim.h"

enum {
	STREAM_FLAGS_KNOWN = 1,   /* CU_STREAM_NON_BLOCKING */
	EVENT_FLAGS_KNOWN = 7,    /* blocking sync, disable timing, interprocess */
	EVENT_DISABLE_TIMING = 2, /* CU_EVENT_DISABLE_TIMING */
};

static CUresult enter_stream(const char *function, CUstream handle, bool per_thread,
			     CUstream *ret_stream)
{
	CUcontext context;
	CUresult result = enter_context(function, &context);

	return result ? result : stream_resolve(context, handle, per_thread, ret_stream);
}

static CUresult enter_event(const char *function, CUevent event)
{
	CUresult result = enter(function);

	if (result)
		return result;
	return event && atomic_load(&event->kind) == OBJECT_EVENT ? CUDA_SUCCESS
								  : CUDA_ERROR_INVALID_HANDLE;
}

/* Enters a function that needs the time of the event, which must have been recorded. */
static CUresult enter_recorded(const char *function, CUevent event)
{
	CUresult result = enter_event(function, event);

	if (result)
		return result;
	return atomic_load(&event->captured) ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
}

static CUresult create_stream(const char *function, CUstream *phStream, unsigned flags)
{
	CUcontext context;
	CUresult result = enter_context(function, &context);

	if (result)
		return result;
	if (!phStream || flags & ~(unsigned)STREAM_FLAGS_KNOWN)
		return CUDA_ERROR_INVALID_VALUE;
	return stream_create(context, flags, phStream);
}

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
	return create_stream(__func__, phStream, Flags);
}

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
	CUresult result = create_stream(__func__, phStream, flags);

	/* The priority is recorded, and has no effect: work is done in the order of queueing. */
	if (!result)
		(*phStream)->priority = priority > 0 ? 0
					: priority < STREAM_PRIORITY_GREATEST
						? STREAM_PRIORITY_GREATEST
						: priority;
	return result;
}

static CUresult destroy_stream(const char *function, CUstream hStream)
{
	const uintptr_t special = 2; /* the highest handle of a default stream */
	CUresult result = enter(function);

	if (result)
		return result;
	return (uintptr_t)hStream > special ? stream_destroy(hStream) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamDestroy(CUstream hStream)
{
	return destroy_stream(__func__, hStream);
}

CUresult cuStreamDestroy_v2(CUstream hStream)
{
	return destroy_stream(__func__, hStream);
}

/* The stream whose frees are complete after a wait for the given one; NULL: those of all streams.
 */
static CUstream stream_covering(CUstream stream)
{
	return stream == &stream->context->legacy ? NULL : stream;
}

static CUresult synchronize(const char *function, CUstream hStream, bool per_thread)
{
	CUstream stream;
	CUresult result = enter_stream(function, hStream, per_thread, &stream);

	if (!result)
		result = capture_refuse(stream);
	if (result)
		return result;
	stream_wait(stream);
	pools_synchronized(stream->context, stream_covering(stream), timeline_now());
	return leave(function, CUDA_SUCCESS);
}

CUresult cuStreamSynchronize(CUstream hStream)
{
	return synchronize(__func__, hStream, false);
}

CUresult cuStreamSynchronize_ptsz(CUstream hStream)
{
	return synchronize(__func__, hStream, true);
}

static CUresult query(const char *function, CUstream hStream, bool per_thread)
{
	CUstream stream;
	CUresult result = enter_stream(function, hStream, per_thread, &stream);

	if (!result)
		result = capture_refuse(stream);
	if (!result)
		result = capture_unsafe();
	if (result)
		return result;
	return stream_done(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamQuery(CUstream hStream)
{
	return query(__func__, hStream, false);
}

CUresult cuStreamQuery_ptsz(CUstream hStream)
{
	return query(__func__, hStream, true);
}

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!phEvent || Flags & ~(unsigned)EVENT_FLAGS_KNOWN)
		return CUDA_ERROR_INVALID_VALUE;
	return event_create(context, Flags, phEvent);
}

CUresult cuEventDestroy(CUevent hEvent)
{
	CUresult result = enter_event(__func__, hEvent);

	return result ? result : event_destroy(hEvent);
}

CUresult cuEventDestroy_v2(CUevent hEvent)
{
	CUresult result = enter_event(__func__, hEvent);

	return result ? result : event_destroy(hEvent);
}

static CUresult record(const char *function, CUevent hEvent, CUstream hStream, bool per_thread)
{
	CUstream stream;
	bool capturing;
	CUresult result = enter_event(function, hEvent);

	if (result)
		return result;
	CUcontext context = context_current();
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	result = stream_resolve(context, hStream, per_thread, &stream);
	if (result)
		return result;
	if (stream->context != hEvent->context)
		return CUDA_ERROR_INVALID_HANDLE;
	result = capture_enter(stream, &capturing);
	if (result)
		return result;
	atomic_store(&hEvent->captured, capturing);
	if (capturing)
		return CUDA_SUCCESS;
	atomic_store(&hEvent->stream, stream_covering(stream));
	stream_end(stream, &hEvent->when);
	return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
	return record(__func__, hEvent, hStream, false);
}

CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream)
{
	return record(__func__, hEvent, hStream, true);
}

/* The flag makes a captured record an external node, which has no effect here. */
CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	return record(__func__, flags > 1 ? NULL : hEvent, hStream, false);
}

CUresult cuEventRecordWithFlags_ptsz(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	return record(__func__, flags > 1 ? NULL : hEvent, hStream, true);
}

/* The event happens after all present work of the context's streams, and delays none of them. */
CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
	CUresult result = enter_event(__func__, hEvent);

	if (result)
		return result;
	CUcontext context = hCtx ? hCtx : context_current();
	if (!context || hEvent->context != context)
		return CUDA_ERROR_INVALID_HANDLE;
	result = capture_refuse_context(context);
	if (result)
		return result;
	atomic_store(&hEvent->captured, false);
	atomic_store(&hEvent->stream, NULL);
	context_end(context, &hEvent->when);
	return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent hEvent)
{
	CUresult result = enter_recorded(__func__, hEvent);

	if (result)
		return result;
	uint64_t at = when_wait(&hEvent->when);
	pools_synchronized(hEvent->context, atomic_load(&hEvent->stream), at);
	return leave(__func__, CUDA_SUCCESS);
}

CUresult cuEventQuery(CUevent hEvent)
{
	CUresult result = enter_recorded(__func__, hEvent);

	if (!result)
		result = capture_unsafe();
	if (result)
		return result;
	return when_at(&hEvent->when) > timeline_now() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult elapsed(const char *function, float *ret_ms, CUevent start, CUevent end)
{
	CUresult result = enter_event(function, start);

	if (result)
		return result;
	if (!ret_ms)
		return CUDA_ERROR_INVALID_VALUE;
	if (!end || atomic_load(&end->kind) != OBJECT_EVENT ||
	    (start->flags | end->flags) & EVENT_DISABLE_TIMING)
		return CUDA_ERROR_INVALID_HANDLE;
	uint64_t from = when_at(&start->when), to = when_at(&end->when);
	uint64_t now = timeline_now();
	if (!from || !to)
		return CUDA_ERROR_INVALID_HANDLE;
	if (from > now || to > now)
		return CUDA_ERROR_NOT_READY;
	*ret_ms = (float)((double)(int64_t)(to - from) / 1e6);
	return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	return elapsed(__func__, pMilliseconds, hStart, hEnd);
}

CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	return elapsed(__func__, pMilliseconds, hStart, hEnd);
}
