/*
 * The timeline: streams, events, and the times at which work is done.
 *
 * No kernel is executed. When a kernel is queued, its end is known at once: a GPU runs one kernel
 * at a time, in the order of queueing by all processes. So
 *
 *     begin = the latest of: the end of all work that was queued on the GPU before (machine_queue)
 *                            the time at which the stream is ready
 *                            now
 *     end   = begin + duration
 *
 * A stream is one number, the time at which it has nothing left to do. An event is the time at
 * which it happens. To wait is to sleep until then. Only work that waits for something outside the
 * GPU has no known end. It is in a backlog (backlog.c), with all work that the stream is given
 * after it. In a context without backlogs, that list is never looked at. All times are
 * CLOCK_MONOTONIC_RAW, in nanoseconds, whose speed is never adjusted, as that of a GPU's clock is
 * not.
 *
 * A context's legacy default stream waits for its blocking streams, and they wait for it. The
 * default stream of a thread is a blocking stream.
 *
 * Streams and events are in slabs that are never freed, so a stale handle is safe to look at: its
 * kind says that it is not in use. The objects lock guards slabs and free lists; times are atomic
 * words that only grow. A launch takes no lock and makes no system call.
 */
#include "sim.h"

#include <stdlib.h>
#include <time.h>

enum {
	SLAB_OBJECTS = 256,
	FLAG_NON_BLOCKING = 1, /* CU_STREAM_NON_BLOCKING */
	HANDLE_LEGACY = 1,     /* CU_STREAM_LEGACY */
	HANDLE_PER_THREAD = 2, /* CU_STREAM_PER_THREAD */
};

struct stream_slab {
	struct stream_slab *next;
	struct CUstream_st streams[SLAB_OBJECTS];
};

struct event_slab {
	struct event_slab *next;
	struct CUevent_st events[SLAB_OBJECTS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream_slab *stream_slabs; /* these four: lock */
static struct event_slab *event_slabs;
static struct CUstream_st *streams_free;
static struct CUevent_st *events_free;

static _Thread_local CUstream thread_stream; /* found last; its address is the thread's number */

uint64_t timeline_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void timeline_sleep_until(uint64_t when_ns)
{
	uint64_t now_ns;

	/* Linux cannot sleep by CLOCK_MONOTONIC_RAW, so the thread sleeps and looks again. */
	while ((now_ns = timeline_now()) < when_ns) {
		struct timespec left = {.tv_sec = (time_t)((when_ns - now_ns) / 1000000000),
					.tv_nsec = (long)((when_ns - now_ns) % 1000000000)};

		nanosleep(&left, NULL);
	}
}

static void raise_to(_Atomic uint64_t *word, uint64_t value)
{
	uint64_t seen = atomic_load(word);

	while (seen < value && !atomic_compare_exchange_weak(word, &seen, value))
		;
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static bool is_legacy(const struct CUstream_st *stream)
{
	return stream == &stream->context->legacy;
}

/* The time at which the stream's work with a known end is done. */
static uint64_t stream_done_at(const struct CUstream_st *stream)
{
	uint64_t done = atomic_load(&stream->done_at_ns);

	return is_legacy(stream) ? later(done, atomic_load(&stream->context->blocking_done_ns))
				 : done;
}

uint64_t stream_ready_at(const struct CUstream_st *stream)
{
	uint64_t done = stream_done_at(stream);

	return stream->flags & FLAG_NON_BLOCKING
		       ? done
		       : later(done, atomic_load(&stream->context->legacy.done_at_ns));
}

bool stream_blocks(const struct CUstream_st *stream)
{
	return !(stream->flags & FLAG_NON_BLOCKING) && !is_legacy(stream);
}

void context_extend(CUcontext context, uint64_t end_ns)
{
	raise_to(&context->done_at_ns, end_ns);
}

void stream_extend(CUstream stream, uint64_t end_ns)
{
	CUcontext context = stream->context;

	raise_to(&stream->done_at_ns, end_ns);
	context_extend(context, end_ns);
	if (stream_blocks(stream))
		raise_to(&context->blocking_done_ns, end_ns);
}

uint64_t stream_mark(CUstream stream, uint64_t not_before_ns)
{
	uint64_t now = timeline_now();
	uint64_t when = later(later(now, not_before_ns), stream_ready_at(stream));

	if (backlogs_any(stream->context)) {
		if (not_before_ns > now)
			backlog_mark(stream, not_before_ns);
	} else if (when > now)
		stream_extend(stream, when);
	return when;
}

void stream_launch(CUstream stream, uint64_t duration_ns)
{
	uint64_t now = timeline_now();
	uint64_t ready = later(now, stream_ready_at(stream));
	unsigned gpu = stream->context->gpu;

	/* If the GPU would be idle before this work, it must stay free for others until then. */
	if (backlogs_any(stream->context) || (ready > now && ready > machine_busy_until(gpu))) {
		backlog_work(stream, &(struct graph_work){.type = CU_GRAPH_NODE_TYPE_KERNEL,
							  .duration_ns = duration_ns});
		return;
	}
	uint64_t end = machine_queue(gpu, ready, duration_ns);
	if (end > now)
		stream_extend(stream, end);
}

void stream_after(CUstream stream, struct when *when)
{
	uint64_t at = when_at(when);

	if (at == TIME_UNKNOWN)
		backlog_after(stream, when);
	else
		stream_mark(stream, at);
}

void stream_end(CUstream stream, struct when *ret_when)
{
	if (backlogs_any(stream->context))
		backlog_end(stream, ret_when);
	else
		when_set(ret_when, later(timeline_now(), stream_ready_at(stream)));
}

void context_end(CUcontext context, struct when *ret_when)
{
	if (backlogs_any(context))
		backlog_end_of_context(context, ret_when);
	else
		when_set(ret_when, later(timeline_now(), atomic_load(&context->done_at_ns)));
}

bool stream_done(CUstream stream)
{
	return !backlog_pending(stream) && stream_done_at(stream) <= timeline_now();
}

void stream_wait(CUstream stream)
{
	backlog_wait(stream);
	timeline_sleep_until(stream_done_at(stream));
}

void stream_wait_ready(CUstream stream)
{
	backlog_wait_ready(stream);
	timeline_sleep_until(stream_ready_at(stream));
}

void context_wait(CUcontext context)
{
	backlog_wait_context(context);
	timeline_sleep_until(atomic_load(&context->done_at_ns));
}

static bool stream_slab_add_locked(void)
{
	struct stream_slab *slab = calloc(1, sizeof *slab);

	if (!slab)
		return false;
	for (unsigned i = 0; i < SLAB_OBJECTS; i++) {
		slab->streams[i].next = streams_free;
		streams_free = &slab->streams[i];
	}
	slab->next = stream_slabs;
	stream_slabs = slab;
	return true;
}

static bool event_slab_add_locked(void)
{
	struct event_slab *slab = calloc(1, sizeof *slab);

	if (!slab)
		return false;
	for (unsigned i = 0; i < SLAB_OBJECTS; i++) {
		slab->events[i].next = events_free;
		events_free = &slab->events[i];
	}
	slab->next = event_slabs;
	event_slabs = slab;
	return true;
}

static CUresult stream_create_locked(CUcontext context, unsigned flags, uint64_t thread,
				     CUstream *ret_stream)
{
	if (!context->alive)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (!streams_free && !stream_slab_add_locked())
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUstream stream = streams_free;
	streams_free = stream->next;
	stream->context = context;
	stream->flags = flags;
	stream->thread = thread;
	stream->priority = 0;
	stream->done_at_ns = 0;
	stream->backlog = NULL;
	atomic_store(&stream->kind, OBJECT_STREAM);
	*ret_stream = stream;
	return CUDA_SUCCESS;
}

static void stream_destroy_locked(CUstream stream)
{
	capture_abandon(stream);
	backlog_leave(stream);
	atomic_store(&stream->kind, 0);
	stream->next = streams_free;
	streams_free = stream;
}

static void event_destroy_locked(CUevent event)
{
	atomic_store(&event->kind, 0);
	when_set(&event->when, 0);
	event->next = events_free;
	events_free = event;
}

CUresult stream_create(CUcontext context, unsigned flags, CUstream *ret_stream)
{
	pthread_mutex_lock(&lock);
	CUresult result = stream_create_locked(context, flags, 0, ret_stream);
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult stream_destroy(CUstream stream)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	pthread_mutex_lock(&lock);
	if (stream->kind == OBJECT_STREAM && !stream->thread && !is_legacy(stream)) {
		stream_destroy_locked(stream);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult event_create(CUcontext context, unsigned flags, CUevent *ret_event)
{
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	pthread_mutex_lock(&lock);
	if (!context->alive) {
		result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	} else if (events_free || event_slab_add_locked()) {
		CUevent event = events_free;

		events_free = event->next;
		event->context = context;
		event->flags = flags;
		event->stream = NULL;
		when_set(&event->when, 0);
		event->captured = false;
		atomic_store(&event->kind, OBJECT_EVENT);
		*ret_event = event;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult event_destroy(CUevent event)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	pthread_mutex_lock(&lock);
	if (event->kind == OBJECT_EVENT) {
		event_destroy_locked(event);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

void timeline_open(CUcontext context)
{
	context->legacy.context = context;
	context->legacy.done_at_ns = 0;
	context->done_at_ns = 0;
	context->blocking_done_ns = 0;
	atomic_store(&context->legacy.kind, OBJECT_STREAM);
}

void timeline_close(CUcontext context)
{
	backlogs_drop(context);
	pthread_mutex_lock(&lock);
	for (struct stream_slab *slab = stream_slabs; slab; slab = slab->next) {
		for (unsigned i = 0; i < SLAB_OBJECTS; i++) {
			CUstream stream = &slab->streams[i];

			if (stream->kind && stream->context == context)
				stream_destroy_locked(stream);
		}
	}
	for (struct event_slab *slab = event_slabs; slab; slab = slab->next) {
		for (unsigned i = 0; i < SLAB_OBJECTS; i++) {
			CUevent event = &slab->events[i];

			if (event->kind && event->context == context)
				event_destroy_locked(event);
		}
	}
	pthread_mutex_unlock(&lock);
}

static bool is_thread_stream(const struct CUstream_st *stream, CUcontext context, uint64_t thread)
{
	return atomic_load(&stream->kind) == OBJECT_STREAM && stream->context == context &&
	       stream->thread == thread;
}

static CUstream thread_stream_find_locked(CUcontext context, uint64_t thread)
{
	for (struct stream_slab *slab = stream_slabs; slab; slab = slab->next) {
		for (unsigned i = 0; i < SLAB_OBJECTS; i++) {
			if (is_thread_stream(&slab->streams[i], context, thread))
				return &slab->streams[i];
		}
	}
	return NULL;
}

/* The calling thread's default stream in the context, made at its first use. */
static CUresult thread_stream_get(CUcontext context, CUstream *ret_stream)
{
	uint64_t thread = (uintptr_t)&thread_stream;
	CUresult result = CUDA_SUCCESS;

	if (!thread_stream || !is_thread_stream(thread_stream, context, thread)) {
		pthread_mutex_lock(&lock);
		CUstream found = thread_stream_find_locked(context, thread);
		if (!found)
			result = stream_create_locked(context, 0, thread, &found);
		pthread_mutex_unlock(&lock);
		if (result)
			return result;
		thread_stream = found;
	}
	*ret_stream = thread_stream;
	return CUDA_SUCCESS;
}

CUresult stream_resolve(CUcontext context, CUstream handle, bool per_thread, CUstream *ret_stream)
{
	if ((uintptr_t)handle == HANDLE_PER_THREAD || (!handle && per_thread))
		return thread_stream_get(context, ret_stream);
	if (!handle || (uintptr_t)handle == HANDLE_LEGACY) {
		*ret_stream = &context->legacy;
		return CUDA_SUCCESS;
	}
	if (atomic_load(&handle->kind) != OBJECT_STREAM)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_stream = handle;
	return CUDA_SUCCESS;
}
