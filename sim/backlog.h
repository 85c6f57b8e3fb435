/*
 * Work that streams have yet to do. Three files share these declarations: backlog.c has the lists
 * of work, backlog_task.c says when a piece of work ends, and backlog_thread.c has the threads that
 * go on with it.
 */
#pragma once

#include "sim.h"

enum task_kind {
	TASK_MARK,  /* does nothing; its end says when the work before it has ended */
	TASK_AFTER, /* waits for `other` */
	TASK_WORK,  /* a kernel, a collective, a copy, a fill */
	TASK_CALL,  /* a function of the host */
	TASK_VALUE, /* waits for a word of memory, or writes one */
};

/* The backlog lock guards all fields. */
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
	struct rank *rank; /* of a collective; `round`: its number among those of the rank */
	uint64_t round;
	struct stream_call call;
	uint64_t called_ns; /* when the function had returned; 0 before */
	struct task *next_call;
	struct stream_value value;
};

struct backlog {
	struct backlog *next;
	CUstream stream; /* NULL: none, or none any more */
	CUcontext context;
	uint64_t done_ns; /* when all before the first task is done */
	struct task *head, *tail;
};

void backlogs_lock(void);
void backlogs_unlock(void);
void backlogs_wait_locked(pthread_cond_t *condition);
/* Ends the tasks that can end. Returns the ns until time alone may end another one; UINT64_MAX:
 * time ends none. */
uint64_t backlogs_advance_locked(void);

/* ---- backlog_task.c */

/* A task with one reference, which its backlog takes over; or NULL. */
struct task *task_new(enum task_kind kind);
/* A reference to the task, which task_put_locked gives back. The last one frees the task. */
struct task *task_hold_locked(struct task *task);
void task_put_locked(struct task *task);
/* The backlog is done with the task, and gives its reference back. Others that have references need
 * only the end of the task, so the task's own reference to another task is given back, too. */
void task_ended_locked(struct task *task);
/* The task will not end by itself, as the context goes: a collective does not spin any more. */
void task_drop_locked(const struct task *task, unsigned gpu);

/* Begins the first task of the backlog and sets its end_ns, where that can be said by now. */
void task_try_locked(struct backlog *backlog, struct task *task, uint64_t now_ns);
/* How long the first task may be left alone. Until its begin has come, if it waits for nothing
 * else. UINT64_MAX: until something other than time ends it. */
uint64_t task_rest_locked(const struct backlog *backlog, uint64_t now_ns);

/* Gives a collective its rank in the communicator, which the GPU joins if it has not yet, and the
 * number of its round. False: there is no memory, or there are too many communicators. */
bool task_join_locked(struct task *task, unsigned gpu);
/* A child has none of its parent's tasks. */
void tasks_forked(void);

static inline uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- backlog_thread.c */

/* The thread has to look at the backlogs in rest_ns at the latest, or, if that is UINT64_MAX, when
 * the bell rings. Starts the thread if there is none. */
void backlog_thread_wake_locked(uint64_t rest_ns);
/* Has the task's function of the host called, in a thread for such functions. The task's called_ns
 * is set when the function has returned. */
void backlog_thread_call_locked(struct task *task);
void backlog_thread_forked(void);
