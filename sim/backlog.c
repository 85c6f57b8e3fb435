/*
 * Backlogs: the work that streams have been given and whose end is not known yet.
 *
 * The end of most kernels is known when they are queued (timeline.c). It is not known yet for
 *
 *     a collective                                   which waits for its other ranks
 *     a function of the host, or a wait for a value  which ends by something outside the GPU
 *     a copy from or to the host                     which begins when the work before it is done
 *     work that follows one of these                 in its stream, or in one that waits for that
 *
 * The stream then has a backlog, a list of tasks (backlog_task.c). A task ends when its end is
 * known, which may lie in the future. Only the first task of a backlog can end. After the last task
 * the backlog is removed, and timeline.c knows the time at which the stream is done.
 *
 * Times are exact, however late a thread looks. Each thread that queues work, asks or waits ends
 * the tasks that can end (backlogs_advance_locked). So does the thread of backlog_thread.c, which
 * is started with the first backlog, and sleeps until the next begin of a task or until the bell
 * rings.
 *
 * An event, a graph or another stream that waits for a task has a reference to the task, in struct
 * when. A stream that is destroyed leaves its backlog, which ends without the stream. The backlog
 * lock guards the backlogs and their tasks. A task for which there is no memory counts as done.
 */
#include "backlog.h"

#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static struct backlog *backlogs; /* under the lock */

void backlogs_lock(void)
{
	pthread_mutex_lock(&lock);
}

void backlogs_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void backlogs_wait_locked(pthread_cond_t *condition)
{
	pthread_cond_wait(condition, &lock);
}

/* -- backlogs --------------------------------------------------------------------------------- */

/* All work before the first task of the backlog is done at done_ns. */
static void done_locked(struct backlog *backlog, uint64_t done_ns)
{
	backlog->done_ns = done_ns;
	if (backlog->stream)
		stream_extend(backlog->stream, done_ns);
	else
		context_extend(backlog->context, done_ns);
}

static bool backlog_advance_locked(struct backlog *backlog, uint64_t now_ns)
{
	bool advanced = false;
	struct task *task;

	while ((task = backlog->head)) {
		task_try_locked(backlog, task, now_ns);
		if (task->end_ns == TIME_UNKNOWN)
			break;
		SIM_ASSERT(task->end_ns >= backlog->done_ns); /* tasks end in their order */
		done_locked(backlog, task->end_ns);
		backlog->head = task->next;
		task_ended_locked(task);
		advanced = true;
	}
	return advanced;
}

/* Removes a backlog that has no tasks. */
static void backlog_remove_locked(struct backlog **at)
{
	struct backlog *backlog = *at;

	SIM_ASSERT(!backlog->head && atomic_load(&backlog->context->backlogs));
	*at = backlog->next;
	if (backlog->stream)
		atomic_store(&backlog->stream->backlog, NULL);
	atomic_fetch_sub(&backlog->context->backlogs, 1);
	free(backlog);
}

uint64_t backlogs_advance_locked(void)
{
	uint64_t now_ns = timeline_now(), rest_ns = UINT64_MAX;
	bool advanced, any = false;

	do {
		advanced = false;
		for (struct backlog *backlog = backlogs; backlog; backlog = backlog->next)
			advanced |= backlog_advance_locked(backlog, now_ns);
		any |= advanced;
	} while (advanced);
	for (struct backlog **at = &backlogs; *at;) {
		if ((*at)->head) {
			rest_ns = earlier(rest_ns, task_rest_locked(*at, now_ns));
			at = &(*at)->next;
		} else {
			backlog_remove_locked(at);
		}
	}
	if (any)
		pthread_cond_broadcast(&ended);
	return rest_ns;
}

static struct backlog *backlog_open_locked(CUcontext context, CUstream stream, uint64_t done_ns)
{
	struct backlog *backlog = calloc(1, sizeof *backlog);

	if (!backlog)
		return NULL;
	backlog->context = context;
	backlog->stream = stream;
	backlog->done_ns = done_ns;
	backlog->next = backlogs;
	backlogs = backlog;
	atomic_fetch_add(&context->backlogs, 1);
	if (stream)
		atomic_store(&stream->backlog, backlog);
	return backlog;
}

/* The backlog takes the reference of the caller. */
static void backlog_append_locked(struct backlog *backlog, struct task *task)
{
	if (backlog->head)
		backlog->tail->next = task;
	else
		backlog->head = task;
	backlog->tail = task;
}

static void after_append_locked(struct backlog *backlog, struct task *other)
{
	struct task *task = task_new(TASK_AFTER);

	if (!task)
		return;
	task->other = task_hold_locked(other);
	backlog_append_locked(backlog, task);
}

/* Whether work that the stream is given waits for that backlog of another stream. */
static bool comes_after(CUstream stream, const struct backlog *backlog)
{
	if (!backlog->stream || backlog->context != stream->context)
		return false;
	return stream == &stream->context->legacy
		       ? stream_blocks(backlog->stream)
		       : stream_blocks(stream) && backlog->stream == &stream->context->legacy;
}

/* Gives the task to the stream, after tasks that wait for the streams that come before it. */
static void stream_append_locked(CUstream stream, struct task *task)
{
	struct backlog *backlog = atomic_load(&stream->backlog);

	task->not_before_ns =
		later(task->not_before_ns, later(timeline_now(), stream_ready_at(stream)));
	if (!backlog)
		backlog = backlog_open_locked(stream->context, stream, 0);
	if (!backlog) {
		task_put_locked(task);
		return;
	}
	for (struct backlog *other = backlogs; other; other = other->next) {
		if (other->head && comes_after(stream, other))
			after_append_locked(backlog, other->tail);
	}
	backlog_append_locked(backlog, task);
	backlog_thread_wake_locked(backlogs_advance_locked());
}

static void stream_append(CUstream stream, struct task *task)
{
	if (!task)
		return;
	pthread_mutex_lock(&lock);
	stream_append_locked(stream, task);
	pthread_mutex_unlock(&lock);
}

/* -- what streams are given ------------------------------------------------------------------- */

void backlog_mark(CUstream stream, uint64_t not_before_ns)
{
	struct task *task = task_new(TASK_MARK);

	if (task)
		task->not_before_ns = not_before_ns;
	stream_append(stream, task);
}

CUresult backlog_work(CUstream stream, const struct graph_work *work)
{
	struct task *task = task_new(TASK_WORK);

	if (!task)
		return CUDA_ERROR_OUT_OF_MEMORY;
	task->work = *work;
	pthread_mutex_lock(&lock);
	bool good = !work->ranks || task_join_locked(task, stream->context->gpu);
	if (good)
		stream_append_locked(stream, task);
	else
		task_put_locked(task);
	pthread_mutex_unlock(&lock);
	return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult backlog_call(CUstream stream, const struct stream_call *call)
{
	struct task *task = task_new(TASK_CALL);

	if (!task)
		return CUDA_ERROR_OUT_OF_MEMORY;
	task->call = *call;
	stream_append(stream, task);
	return CUDA_SUCCESS;
}

CUresult backlog_value(CUstream stream, const struct stream_value *value)
{
	struct task *task = task_new(TASK_VALUE);

	if (!task)
		return CUDA_ERROR_OUT_OF_MEMORY;
	task->value = *value;
	stream_append(stream, task);
	return CUDA_SUCCESS;
}

void backlogs_drop(CUcontext context)
{
	uint64_t now_ns = timeline_now();

	pthread_mutex_lock(&lock);
	for (struct backlog *backlog = backlogs; backlog; backlog = backlog->next) {
		struct task *task;

		while (backlog->context == context && (task = backlog->head)) {
			task->end_ns = now_ns;
			task_drop_locked(task, context->gpu);
			backlog->head = task->next;
			task_ended_locked(task);
		}
	}
	pthread_cond_broadcast(&ended);
	backlog_thread_wake_locked(backlogs_advance_locked());
	pthread_mutex_unlock(&lock);
}

void backlog_leave(CUstream stream)
{
	if (!atomic_load(&stream->backlog))
		return;
	pthread_mutex_lock(&lock);
	struct backlog *backlog = atomic_load(&stream->backlog);
	if (backlog)
		backlog->stream = NULL;
	atomic_store(&stream->backlog, NULL);
	pthread_mutex_unlock(&lock);
}

/* -- moments ---------------------------------------------------------------------------------- */

static void when_forget_locked(struct when *when)
{
	task_put_locked(when->task);
	when->task = NULL;
}

void when_set(struct when *when, uint64_t at_ns)
{
	if (atomic_load(&when->at_ns) == TIME_UNKNOWN) {
		pthread_mutex_lock(&lock);
		when_forget_locked(when);
		pthread_mutex_unlock(&lock);
	}
	atomic_store(&when->at_ns, at_ns);
}

/* `when` takes the reference of the caller. */
static void when_set_task_locked(struct when *when, struct task *task)
{
	when_forget_locked(when);
	when->task = task;
	atomic_store(&when->at_ns, TIME_UNKNOWN);
}

static uint64_t when_at_locked(struct when *when)
{
	if (when->task && when->task->end_ns != TIME_UNKNOWN) {
		atomic_store(&when->at_ns, when->task->end_ns);
		when_forget_locked(when);
	}
	return atomic_load(&when->at_ns);
}

uint64_t when_at(struct when *when)
{
	uint64_t at = atomic_load(&when->at_ns);

	if (at != TIME_UNKNOWN)
		return at;
	pthread_mutex_lock(&lock);
	backlogs_advance_locked();
	at = when_at_locked(when);
	pthread_mutex_unlock(&lock);
	return at;
}

static uint64_t end_wait_locked(const struct task *task)
{
	backlogs_advance_locked();
	while (task->end_ns == TIME_UNKNOWN)
		pthread_cond_wait(&ended, &lock);
	return task->end_ns;
}

uint64_t when_wait(struct when *when)
{
	pthread_mutex_lock(&lock);
	uint64_t at = when_at_locked(when);
	if (at == TIME_UNKNOWN && when->task) {
		struct task *task = task_hold_locked(when->task);

		at = end_wait_locked(task);
		task_put_locked(task);
	}
	pthread_mutex_unlock(&lock);
	timeline_sleep_until(at);
	return at;
}

void backlog_end(CUstream stream, struct when *ret_when)
{
	struct task *task = task_new(TASK_MARK);

	if (!task)
		return;
	pthread_mutex_lock(&lock);
	when_set_task_locked(ret_when, task_hold_locked(task));
	stream_append_locked(stream, task);
	when_at_locked(ret_when);
	pthread_mutex_unlock(&lock);
}

static bool concerns(const struct backlog *backlog, CUcontext context, CUstream stream, bool ready)
{
	if (backlog->context != context)
		return false;
	if (!stream || backlog->stream == stream)
		return true;
	return (ready || stream == &context->legacy) && comes_after(stream, backlog);
}

/* A mark that ends after all work that the stream has been given, or after all work of the context
 * if the stream is NULL. With `ready`, the mark also ends after work of other streams that the
 * stream's next task would wait for. No other task waits for the mark. */
static struct task *join_locked(CUcontext context, CUstream stream, bool ready)
{
	struct task *task = task_new(TASK_MARK);
	struct backlog *join = task ? backlog_open_locked(context, NULL, timeline_now()) : NULL;

	if (!join) {
		task_put_locked(task);
		return NULL;
	}
	for (struct backlog *other = join->next; other; other = other->next) {
		if (other->head && concerns(other, context, stream, ready))
			after_append_locked(join, other->tail);
	}
	backlog_append_locked(join, task_hold_locked(task));
	return task;
}

void backlog_end_of_context(CUcontext context, struct when *ret_when)
{
	pthread_mutex_lock(&lock);
	struct task *task = join_locked(context, NULL, false);
	if (task) {
		task->not_before_ns = atomic_load(&context->done_at_ns);
		when_set_task_locked(ret_when, task);
	}
	backlogs_advance_locked();
	when_at_locked(ret_when);
	pthread_mutex_unlock(&lock);
}

void backlog_after(CUstream stream, struct when *when)
{
	struct task *task = task_new(TASK_AFTER);

	if (!task)
		return;
	pthread_mutex_lock(&lock);
	if (when->task) {
		task->other = task_hold_locked(when->task);
	} else {
		task->kind = TASK_MARK;
		task->not_before_ns = atomic_load(&when->at_ns);
	}
	stream_append_locked(stream, task);
	pthread_mutex_unlock(&lock);
}

/* -- waiting ---------------------------------------------------------------------------------- */

bool backlog_pending(CUstream stream)
{
	bool pending = false;

	if (!atomic_load(&stream->context->backlogs))
		return false;
	pthread_mutex_lock(&lock);
	backlogs_advance_locked();
	for (struct backlog *backlog = backlogs; backlog; backlog = backlog->next)
		pending |= concerns(backlog, stream->context, stream, false);
	pthread_mutex_unlock(&lock);
	return pending;
}

static void wait_for(CUcontext context, CUstream stream, bool ready)
{
	if (!atomic_load(&context->backlogs))
		return;
	pthread_mutex_lock(&lock);
	struct task *task = join_locked(context, stream, ready);
	if (task) {
		end_wait_locked(task);
		task_put_locked(task);
	}
	pthread_mutex_unlock(&lock);
}

void backlog_wait(CUstream stream)
{
	wait_for(stream->context, stream, false);
}

void backlog_wait_ready(CUstream stream)
{
	wait_for(stream->context, stream, true);
}

void backlog_wait_context(CUcontext context)
{
	wait_for(context, NULL, false);
}

/* A child process has none of its parent's backlogs. */
void backlogs_forked(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&ended, NULL);
	backlogs = NULL;
	tasks_forked();
	backlog_thread_forked();
}
