/*
 * What backlog.c (what streams have yet to do) and backlog_thread.c (the threads that go on with
 * it) share.
 */
#pragma once

#include "sim.h"

enum task_kind {
	TASK_MARK,  /* nothing */
	TASK_AFTER, /* waits for `other` */
	TASK_WORK,  /* a kernel, a collective, a copy, a fill */
	TASK_CALL,  /* a function of the host */
	TASK_VALUE, /* waits for a word of memory, or writes one */
};

/* All under the backlog lock. */
struct task {
	enum task_kind kind;
	unsigned references;
	uint64_t not_before_ns;
	uint64_t end_ns; /* TIME_UNKNOWN until it is known; then it never changes */
	uint64_t begun_ns;
	bool begun;
	struct task *next; /* in its backlog */
	struct task *other;
	struct graph_work work;
	struct rank *rank; /* of a collective, and which round of it that is */
	uint64_t round;
	struct stream_call call;
	uint64_t called_ns; /* when the function had returned; 0 before */
	struct task *next_call;
	struct stream_value value;
};

void backlogs_lock(void);
void backlogs_unlock(void);
void backlogs_wait_locked(pthread_cond_t *condition);
/* Ends what has come to its end. How long until there may be more to do, without a ring of the
 * bell; UINT64_MAX: nothing that is a matter of time. */
uint64_t backlogs_advance_locked(void);
void task_put_locked(struct task *task);

/* ---- backlog_thread.c */

/* There is something to do in rest_ns at the latest, unless that is UINT64_MAX. Starts the thread
 * if there is none. */
void backlog_thread_wake_locked(uint64_t rest_ns);
/* Has the host's function called, in a thread for these: called_ns says when it has returned. */
void backlog_thread_call_locked(struct task *task);
void backlog_thread_forked(void);
