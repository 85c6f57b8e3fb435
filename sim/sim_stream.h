/*
 * Work in the simulated libcuda: streams, events, and when work is done; captures, copies and
 * launches.
 */
#pragma once

#include "cuda_abi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- timeline.c */

#define TIME_UNKNOWN UINT64_MAX

/* A time on the timeline, which may not be known yet. All zeroes: long ago. */
struct when {
	_Atomic uint64_t at_ns; /* TIME_UNKNOWN: it is the end of `task` */
	struct task *task;      /* a reference that backlog.c gives back */
};

struct CUstream_st {
	_Atomic uint32_t kind; /* OBJECT_STREAM while it exists */
	unsigned flags;
	_Atomic(CUcontext) context;
	int priority;
	struct CUstream_st *next;          /* in the free list */
	_Atomic uint64_t thread;           /* the thread whose default stream it is, or 0 */
	_Atomic uint64_t done_at_ns;       /* as far as is known */
	_Atomic(struct backlog *) backlog; /* its work whose end is not known yet, or NULL */
};

struct CUevent_st {
	_Atomic uint32_t kind; /* OBJECT_EVENT while it exists */
	unsigned flags;
	_Atomic(CUcontext) context;
	struct CUevent_st *next; /* in the free list */
	_Atomic(CUstream)
		stream;   /* it was recorded in; NULL: in all that the default stream waits for */
	struct when when; /* at_ns 0: the event was never recorded */
	_Atomic bool captured; /* it was recorded last in a stream that was captured */
};

enum {
	OBJECT_STREAM = 0x6d727473,
	OBJECT_EVENT = 0x746e7665,
	OBJECT_FUNCTION = 0x636e7566,
};

enum {
	STREAM_PRIORITY_GREATEST = -5, /* the lowest priority is 0 */
};

uint64_t timeline_now(void);
void timeline_sleep_until(uint64_t when_ns);

/* Finds the stream of an application's handle in that context. per_thread: for the _ptsz variants.
 */
CUresult stream_resolve(CUcontext context, CUstream handle, bool per_thread, CUstream *ret_stream);
/* The time at which work that the stream is given now could begin, as far as it is known. The GPU
 * may be busy for longer. */
uint64_t stream_ready_at(const struct CUstream_st *stream);
/* Whether all work of the stream is done; and a wait for that. The legacy default stream stands for
 * all blocking streams. */
bool stream_done(CUstream stream);
void stream_wait(CUstream stream);
/* Waits until work that the stream is given now could begin. */
void stream_wait_ready(CUstream stream);
void context_wait(CUcontext context); /* waits for all its streams */
/* Whether the legacy default stream waits for the stream. */
bool stream_blocks(const struct CUstream_st *stream);
/* Queues work that takes no time, after the stream's other work and not before not_before_ns.
 * Returns its time, as far as it is known. */
uint64_t stream_mark(CUstream stream, uint64_t not_before_ns);
/* Queues a kernel. */
void stream_launch(CUstream stream, uint64_t duration_ns);
/* Work that is queued after this begins after that time. */
void stream_after(CUstream stream, struct when *when);
/* The time at which the present work of the stream, or of all of the context, is done. */
void stream_end(CUstream stream, struct when *ret_when);
void context_end(CUcontext context, struct when *ret_when);
CUresult stream_create(CUcontext context, unsigned flags, CUstream *ret_stream);
CUresult stream_destroy(CUstream stream); /* its work goes on */
CUresult event_create(CUcontext context, unsigned flags, CUevent *ret_event);
CUresult event_destroy(CUevent event);
void timeline_open(CUcontext context);
void timeline_close(CUcontext context); /* ends all its streams and events */
/* For backlog.c: the stream, or a destroyed stream of the context, is not done before that time. */
void stream_extend(CUstream stream, uint64_t end_ns);
void context_extend(CUcontext context, uint64_t end_ns);

/* ---- capture.c */

/* The rows of a copy or fill, in an array or at an address. */
struct transfer_side {
	CUarray array; /* or NULL */
	uint64_t address;
	size_t pitch, slice; /* bytes from one row to the next, and from one slice */
	bool on_device;      /* the address must be device memory */
};

/* A kernel, copy or fill: the work of a stream, or of a node of a graph. */
struct graph_work {
	CUgraphNodeType type;
	CUfunction function;  /* of a kernel */
	uint64_t duration_ns; /* for which the device is busy */
	uint64_t host_ns; /* of a copy from or to the host, which does not keep the device busy */
	uint64_t communicator; /* of a collective; 0: it is none */
	unsigned ranks;
	/* Copies, and fills with elements of 1, 2 or 4 bytes: slices of rows of bytes. */
	struct transfer_side target, source;
	size_t bytes, rows, slices;
	unsigned value, element_bytes;
};

/* Before a stream is given work. *ret_capturing: the work becomes a node, by one of the functions
 * below. */
CUresult capture_enter(CUstream stream, bool *ret_capturing);
CUresult capture_work(CUstream stream, const struct graph_work *work);
CUresult capture_take(CUstream stream, const CUmemPoolProps *properties, size_t bytes,
		      uint64_t *ret_address);
CUresult capture_give(CUstream stream, uint64_t address);
CUresult capture_child(CUstream stream, CUgraph child);
/* For calls that cannot be captured: of a stream; of all streams of a context; and those that are
 * unsafe during any capture. They spoil the capture. */
CUresult capture_refuse(CUstream stream);
CUresult capture_refuse_context(CUcontext context);
CUresult capture_unsafe(void);
CUresult capture_begin(CUstream stream, CUstreamCaptureMode mode);
CUresult capture_end(CUstream stream, CUgraph *ret_graph);
CUresult capture_status(CUstream stream, CUstreamCaptureStatus *ret_status);
CUresult capture_exchange_mode(CUstreamCaptureMode *mode);
void capture_abandon(CUstream stream); /* the stream ends */

/* ---- transfer.c */

/* Does a copy or fill at once. */
CUresult transfer_do(const struct graph_work *work);
/* For a node of a graph: fills in how long the copy or fill takes, or returns why it is refused. */
CUresult transfer_prepare(struct graph_work *work);
/* transfer_calls.c: the copy that a descriptor describes. */
void transfer_describe(const CUDA_MEMCPY3D *what, struct graph_work *ret_work);
/* Gives a copy or fill to the stream. */
CUresult transfer_submit(const char *function, CUstream handle, bool per_thread,
			 struct graph_work *work);

/* ---- backlog.c */

/* A function of the host, of cuLaunchHostFunc or of cuStreamAddCallback. */
struct stream_call {
	CUhostFn function; /* or NULL */
	CUstreamCallback callback;
	CUstream handle; /* for cuStreamAddCallback: the application's handle */
	void *data;
};

/* A wait for a word of memory, or a write of one. */
struct stream_value {
	uint64_t address, value;
	unsigned flags; /* CU_STREAM_WAIT_VALUE_... */
	bool wide;      /* 64 bits, not 32 */
	bool writes;
};

/* stream_calls.c: calls the function; writes the word, or says whether it has the value that a
 * stream waits for. */
void stream_call_make(const struct stream_call *call);
bool stream_value_done(const struct stream_value *value);

/* These queue a task in the stream: a mark, after which work waits until not_before_ns; a wait for
 * that time; a kernel, collective, copy or fill; a function of the host; and a wait for or write of
 * a value. CUDA_ERROR_OUT_OF_MEMORY also if there are too many communicators. */
void backlog_mark(CUstream stream, uint64_t not_before_ns);
void backlog_after(CUstream stream, struct when *when);
CUresult backlog_work(CUstream stream, const struct graph_work *work);
CUresult backlog_call(CUstream stream, const struct stream_call *call);
CUresult backlog_value(CUstream stream, const struct stream_value *value);
void backlog_end(CUstream stream, struct when *ret_when);
void backlog_end_of_context(CUcontext context, struct when *ret_when);

/* backlog_pending: whether the stream, or a stream that it stands for, has work whose end is not
 * known. The others wait until all ends are known: of that work; also of work that the stream's
 * next task would wait for; and of all work of the context. */
bool backlog_pending(CUstream stream);
void backlog_wait(CUstream stream);
void backlog_wait_ready(CUstream stream);
void backlog_wait_context(CUcontext context);

void backlog_leave(CUstream stream);   /* the stream ends; its work goes on */
void backlogs_drop(CUcontext context); /* the context ends, and its work with it */
void backlogs_forked(void);

uint64_t when_at(struct when *when); /* TIME_UNKNOWN while it is not known */
void when_set(struct when *when, uint64_t at_ns);
uint64_t when_wait(struct when *when); /* waits for the time, and returns it */

/* ---- launch_calls.c */

/* The work of a launch of the kernel with that grid and block. */
CUresult kernel_work(CUfunction function, const unsigned shape[6], void **parameters, void **extra,
		     struct graph_work *ret_work);