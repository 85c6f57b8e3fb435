/*
 * Stream capture: work that a stream is given becomes the nodes of a graph, each after the node
 * before.
 *
 * A capture is of one stream; other streams cannot join it here. During a capture, calls that may
 * wait for a stream although the application does not ask for it are unsafe. They fail, and spoil
 * every capture that forbids them to the calling thread. That depends on the modes of the capture
 * and of the thread:
 *
 *     capture GLOBAL         forbids them to each thread of mode GLOBAL, the mode in which threads
 *                            begin, and to the thread that began the capture
 *     capture THREAD_LOCAL   forbids them to the thread that began the capture
 *     thread RELAXED         may make them during any capture
 *
 * All calls of a spoilt capture fail until it is ended. The default stream cannot be captured, and
 * its use spoils the captures of the streams that it waits for. The graphs lock guards all of this.
 * While `active` is 0, calls do not take it.
 */
#include "graph.h"

#include <stdlib.h>

struct capture {
	CUstream stream;
	CUcontext context;
	CUstreamCaptureMode mode;
	uint64_t thread; /* the one that began the capture */
	bool spoilt;
	CUgraph graph;
	CUgraphNode last;
	struct capture *next;
};

static struct capture *captures; /* graphs_lock */
static _Atomic unsigned active;  /* how many captures there are */

static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* A number for the calling thread: the address of a variable of the thread. */
static uint64_t thread_self(void)
{
	return (uintptr_t)&thread_mode;
}

static struct capture *find_locked(const struct CUstream_st *stream)
{
	for (struct capture *capture = captures; capture; capture = capture->next) {
		if (capture->stream == stream)
			return capture;
	}
	return NULL;
}

static bool is_legacy(const struct CUstream_st *stream)
{
	return stream == &stream->context->legacy;
}

/* Whether the default stream of the context would have to wait for a captured stream. `spoils`:
 * such captures are spoilt. */
static bool implicit_locked(CUcontext context, bool spoils)
{
	bool found = false;

	for (struct capture *capture = captures; capture; capture = capture->next) {
		if (capture->context != context || !stream_blocks(capture->stream))
			continue;
		found = true;
		capture->spoilt |= spoils;
	}
	return found;
}

static CUresult enter_locked(CUstream stream, bool *ret_capturing)
{
	const struct capture *capture = find_locked(stream);

	*ret_capturing = capture != NULL;
	if (capture)
		return capture->spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
	return is_legacy(stream) && implicit_locked(stream->context, true)
		       ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
		       : CUDA_SUCCESS;
}

CUresult capture_enter(CUstream stream, bool *ret_capturing)
{
	*ret_capturing = false;
	if (!atomic_load(&active))
		return CUDA_SUCCESS;
	graphs_lock();
	CUresult result = enter_locked(stream, ret_capturing);
	graphs_unlock();
	return result;
}

CUresult capture_refuse(CUstream stream)
{
	bool capturing;

	if (!atomic_load(&active))
		return CUDA_SUCCESS;
	graphs_lock();
	CUresult result = enter_locked(stream, &capturing);
	if (capturing && !result) {
		find_locked(stream)->spoilt = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	graphs_unlock();
	return result;
}

CUresult capture_refuse_context(CUcontext context)
{
	CUresult result = CUDA_SUCCESS;

	if (!atomic_load(&active))
		return CUDA_SUCCESS;
	graphs_lock();
	for (struct capture *capture = captures; capture; capture = capture->next) {
		if (capture->context != context)
			continue;
		capture->spoilt = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	graphs_unlock();
	return result;
}

CUresult capture_unsafe(void)
{
	CUresult result = CUDA_SUCCESS;

	if (!atomic_load(&active) || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	graphs_lock();
	for (struct capture *capture = captures; capture; capture = capture->next) {
		bool own = capture->thread == thread_self() &&
			   capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
		bool global = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
			      thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;

		if (!own && !global)
			continue;
		capture->spoilt = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	graphs_unlock();
	return result;
}

/* Finds the capture to which a node is to be added, and the node that it is added after. */
static CUresult open_locked(CUstream stream, struct capture **ret_capture, size_t *ret_count)
{
	struct capture *capture = find_locked(stream);

	if (!capture || capture->spoilt)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	*ret_capture = capture;
	*ret_count = capture->last ? 1 : 0;
	return CUDA_SUCCESS;
}

CUresult capture_work(CUstream stream, const struct graph_work *work)
{
	struct capture *capture;
	CUgraphNode node;
	size_t count;

	graphs_lock();
	CUresult result = open_locked(stream, &capture, &count);
	if (!result)
		result = node_add_locked(capture->graph, &capture->last, count, work->type, &node);
	if (!result) {
		node->work = *work;
		capture->last = node;
	}
	graphs_unlock();
	return result;
}

CUresult capture_take(CUstream stream, const CUmemPoolProps *properties, size_t bytes,
		      uint64_t *ret_address)
{
	struct capture *capture;
	CUgraphNode node;
	size_t count;

	graphs_lock();
	CUresult result = open_locked(stream, &capture, &count);
	if (!result)
		result = node_add_alloc_locked(capture->graph, &capture->last, count, properties,
					       bytes, &node);
	if (!result) {
		*ret_address = node->space->space.address;
		capture->last = node;
	}
	graphs_unlock();
	return result;
}

CUresult capture_give(CUstream stream, uint64_t address)
{
	struct capture *capture;
	CUgraphNode node;
	size_t count;

	graphs_lock();
	CUresult result = open_locked(stream, &capture, &count);
	if (!result)
		result =
			node_add_free_locked(capture->graph, &capture->last, count, address, &node);
	if (!result)
		capture->last = node;
	graphs_unlock();
	return result;
}

CUresult capture_child(CUstream stream, CUgraph child)
{
	struct capture *capture;
	CUgraphNode node;
	size_t count;

	graphs_lock();
	CUresult result = open_locked(stream, &capture, &count);
	if (!result)
		result = node_add_child_locked(capture->graph, &capture->last, count, child, &node);
	if (!result)
		capture->last = node;
	graphs_unlock();
	return result;
}

CUresult capture_begin(CUstream stream, CUstreamCaptureMode mode)
{
	if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_legacy(stream))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	struct capture *capture = calloc(1, sizeof *capture);
	if (!capture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*capture = (struct capture){
		.stream = stream,
		.context = stream->context,
		.mode = mode,
		.thread = thread_self(),
	};
	CUresult result = CUDA_SUCCESS;
	graphs_lock();
	if (find_locked(stream))
		result = CUDA_ERROR_ILLEGAL_STATE;
	else
		capture->graph = graph_new_locked();
	if (!result && !capture->graph)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!result) {
		capture->next = captures;
		captures = capture;
		atomic_fetch_add(&active, 1);
	}
	graphs_unlock();
	if (result)
		free(capture);
	return result;
}

static void remove_locked(struct capture *capture)
{
	struct capture **at = &captures;

	while (*at != capture)
		at = &(*at)->next;
	*at = capture->next;
	atomic_fetch_sub(&active, 1);
	free(capture);
}

static CUresult end_locked(CUstream stream, CUgraph *ret_graph)
{
	struct capture *capture = find_locked(stream);
	CUresult result = CUDA_SUCCESS;

	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (capture->thread != thread_self() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	*ret_graph = capture->graph;
	if (capture->spoilt) {
		graph_free_locked(capture->graph);
		*ret_graph = NULL;
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	remove_locked(capture);
	return result;
}

CUresult capture_end(CUstream stream, CUgraph *ret_graph)
{
	graphs_lock();
	CUresult result = end_locked(stream, ret_graph);
	graphs_unlock();
	return result;
}

void capture_abandon(CUstream stream)
{
	if (!atomic_load(&active))
		return;
	graphs_lock();
	struct capture *capture = find_locked(stream);
	if (capture) {
		graph_free_locked(capture->graph);
		remove_locked(capture);
	}
	graphs_unlock();
}

CUresult capture_status(CUstream stream, CUstreamCaptureStatus *ret_status)
{
	CUresult result = CUDA_SUCCESS;

	graphs_lock();
	const struct capture *capture = find_locked(stream);
	if (capture)
		*ret_status = capture->spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
					      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	else if (is_legacy(stream) && implicit_locked(stream->context, false))
		result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	else
		*ret_status = CU_STREAM_CAPTURE_STATUS_NONE;
	graphs_unlock();
	return result;
}

CUresult capture_exchange_mode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode old = thread_mode;

	if (*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}
