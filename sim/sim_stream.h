/*
 * Work in the simulated libcuda: what streams are given, when it is done, and what waits for what;
 * captures, copies and launches.
 */
#pragma once

#include "cuda_abi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- timeline.c */

#define TIME_UNKNOWN UINT64_MAX

/* A moment of the timeline. All zeroes: long ago. */
struct when {
	_Atomic uint64_t at_ns; /* TIME_UNKNOWN: when `task` ends */
	struct task *task;      /* backlog.c's */
};

struct CUstream_st {
	_Atomic uint32_t kind; /* OBJECT_STREAM while it exists */
	unsigned flags;
	_Atomic(CUcontext) context;
	int priority;
	struct CUstream_st *next;    /* in the free list */
	_Atomic uint64_t thread;     /* whose per-thread default stream it is, 0 if nobody's */
	_Atomic uint64_t done_at_ns; /* as far as is known */
	_Atomic(struct backlog *) backlog; /* what is behind that, or NULL */
};

struct CUevent_st {
	_Atomic uint32_t kind; /* OBJECT_EVENT while it exists */
	unsigned flags;
	_Atomic(CUcontext) context;
	struct CUevent_st *next;  /* in the free list */
	_Atomic(CUstream) stream; /* recorded in; NULL: in all that the default stream waits for */
	struct when when;         /* at 0: never recorded */
	_Atomic bool captured;    /* recorded last while its stream was */
};

enum {
	OBJECT_STREAM = 0x6d727473,
	OBJECT_EVENT = 0x746e7665,
	OBJECT_FUNCTION = 0x636e7566,
};

enum {
	STREAM_PRIORITY_GREATEST = -5, /* the least is 0 */
};

uint64_t timeline_now(void);
void timeline_sleep_until(uint64_t when_ns);

/* What an application's handle means in that context; per_thread is true in the _pts variants. */
CUresult stream_resolve(CUcontext context, CUstream handle, bool per_thread, CUstream *ret_stream);
/* When something given to it now could begin, as far as its context is concerned and that is known.
 */
uint64_t stream_ready_at(const struct CUstream_st *stream);
/* Whether all is done that the stream has been given, and until it is; the legacy default stream
 * stands for all blocking ones. */
bool stream_done(CUstream stream);
void stream_wait(CUstream stream);
/* Until something given to it now could begin. */
void stream_wait_ready(CUstream stream);
void context_wait(CUcontext context); /* for all its streams */
/* Whether the legacy default stream waits for it. */
bool stream_blocks(const struct CUstream_st *stream);
/* Queues what takes no time and waits for its stream and until not_before_ns; when it happens, as
 * far as is known. */
uint64_t stream_mark(CUstream stream, uint64_t not_before_ns);
/* Queues a kernel. */
void stream_launch(CUstream stream, uint64_t duration_ns);
/* What is queued from now on comes after that moment. */
void stream_after(CUstream stream, struct when *when);
/* The moment at which the stream, or all of the context, will have done what it has been given. */
void stream_end(CUstream stream, struct when *ret_when);
void context_end(CUcontext context, struct when *ret_when);
CUresult stream_create(CUcontext context, unsigned flags, CUstream *ret_stream);
CUresult stream_destroy(CUstream stream); /* what it has been given goes on */
CUresult event_create(CUcontext context, unsigned flags, CUevent *ret_event);
CUresult event_destroy(CUevent event);
void timeline_open(CUcontext context);
void timeline_close(CUcontext context); /* ends all its streams and events */
/* For backlog.c: the stream, or a destroyed one of the context, is done at that time at the
 * earliest. */
void stream_extend(CUstream stream, uint64_t end_ns);
void context_extend(CUcontext context, uint64_t end_ns);

/* ---- capture.c */

/* Where a copy's or fill's rows are, in an array or from an address on. */
struct transfer_side {
	CUarray array; /* or NULL */
	uint64_t address;
	size_t pitch, slice; /* bytes from one row to the next, and from one slice */
	bool on_device;      /* it must be device memory */
};

/* What a stream is given, and a node of a graph does, but for memory and other graphs. */
struct graph_work {
	CUgraphNodeType type;
	uint64_t duration_ns;  /* on the device */
	uint64_t host_ns;      /* a copy from or to the host, which the device has no part in */
	uint64_t communicator; /* a collective's, which has so many ranks; 0: it is none */
	unsigned ranks;
	/* Copies, and fills with elements of 1, 2 or 4 bytes: so many slices of rows of bytes. */
	struct transfer_side target, source;
	size_t bytes, rows, slices;
	unsigned value, element_bytes;
};

/* For whatever a stream is given: whether it is to become a node, by one of the functions below. */
CUresult capture_enter(CUstream stream, bool *ret_capturing);
CUresult capture_work(CUstream stream, const struct graph_work *work);
CUresult capture_take(CUstream stream, const CUmemPoolProps *properties, size_t bytes,
		      uint64_t *ret_address);
CUresult capture_give(CUstream stream, uint64_t address);
CUresult capture_child(CUstream stream, CUgraph child);
/* For what cannot be captured, of a stream, of all streams of a context; and for what is unsafe
 * while anything is. It spoils the capture. */
CUresult capture_refuse(CUstream stream);
CUresult capture_refuse_context(CUcontext context);
CUresult capture_unsafe(void);
CUresult capture_begin(CUstream stream, CUstreamCaptureMode mode);
CUresult capture_end(CUstream stream, CUgraph *ret_graph);
CUresult capture_status(CUstream stream, CUstreamCaptureStatus *ret_status);
CUresult capture_exchange_mode(CUstreamCaptureMode *mode);
void capture_abandon(CUstream stream); /* the stream ends */

/* ---- transfer.c */

/* Does a copy or fill, at once. */
CUresult transfer_do(const struct graph_work *work);
/* What a node of a graph would do: how long it takes, or why it is refused. */
CUresult transfer_prepare(struct graph_work *work);
/* transfer_calls.c: what a descriptor asks for. */
void transfer_describe(const CUDA_MEMCPY3D *what, struct graph_work *ret_work);
/* Gives it to the stream. */
CUresult transfer_submit(const char *function, CUstream handle, bool per_thread,
			 struct graph_work *work);

/* ---- backlog.c */

/* A function of the host, of either kind. */
struct stream_call {
	CUhostFn function; /* or NULL */
	CUstreamCallback callback;
	CUstream handle; /* for the latter: the application's */
	void *data;
};

/* A word of memory that is waited for, or written. */
struct stream_value {
	uint64_t address, value;
	unsigned flags; /* CU_STREAM_WAIT_VALUE_... */
	bool wide;      /* 64 bits, not 32 */
	bool writes;
};

/* stream_calls.c: calls it; writes it, or says whether it is what is waited for. */
void stream_call_make(const struct stream_call *call);
bool stream_value_done(const struct stream_value *value);

/* Queue: what ends at once, and has all the stream is given wait until not_before_ns or for that
 * moment; a kernel, collective, copy or fill; and so on. CUDA_ERROR_OUT_OF_MEMORY also if there are
 * too many communicators. */
void backlog_mark(CUstream stream, uint64_t not_before_ns);
void backlog_after(CUstream stream, struct when *when);
CUresult backlog_work(CUstream stream, const struct graph_work *work);
CUresult backlog_call(CUstream stream, const struct stream_call *call);
CUresult backlog_value(CUstream stream, const struct stream_value *value);
void backlog_end(CUstream stream, struct when *ret_when);
void backlog_end_of_context(CUcontext context, struct when *ret_when);

/* Whether there is anything whose end is not known: given to the stream, and to those that it
 * stands for. Then, until all ends are known: of that; of what else its next task would wait for;
 * of all in the context. */
bool backlog_pending(CUstream stream);
void backlog_wait(CUstream stream);
void backlog_wait_ready(CUstream stream);
void backlog_wait_context(CUcontext context);

void backlog_leave(CUstream stream);   /* it ends; what it has been given goes on */
void backlogs_drop(CUcontext context); /* likewise, and with it what it has been given */
void backlogs_forked(void);

uint64_t when_at(struct when *when); /* TIME_UNKNOWN as long as it is not known */
void when_set(struct when *when, uint64_t at_ns);
uint64_t when_wait(struct when *when); /* until it has come; when that was */

/* ---- launch_calls.c */

/* What launching the kernel with that grid and block would be. */
CUresult kernel_work(CUfunction function, const unsigned shape[6], void **parameters, void **extra,
		     struct graph_work *ret_work);