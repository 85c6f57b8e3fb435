/*
 * Backlogs: what streams have been given whose end is not known yet.
 *
 * Mostly the end of a kernel is known when it is queued (timeline.c). It is not if the kernel waits
 * for something that is still to happen: a collective for its other ranks, and everything behind it
 * in the stream; work behind a function of the host or a wait for a value; and work behind a copy,
 * as a GPU that was given it at once would be kept from everybody else until the copy is done. From
 * then on the stream has a backlog, a list of tasks. A task ends when its end is known, which may
 * lie in the future, and only the first task of a backlog can end. With the last one the backlog is
 * gone, and the stream has what timeline.c knows: a time at which it is done.
 *
 *   a task                    ends if                              its end
 *   mark                      always                               its begin
 *   wait for another task     that has ended                       the later of its begin and that
 *   kernel, copy in the GPU   its turn has come                    state_queue says
 *   collective                its turn has come, and that of all   the latest begin of a rank, and
 *                             other ranks                          how long it takes
 *   copy from or to the host  its begin has come                   its begin, and how long it takes
 *   host function             it has returned                      when it had
 *   wait for a value          its begin has come, and the value    when that was seen
 *   write of a value          its begin has come                   its begin
 *
 * A task's begin is the end of the one before, or when it was queued if that is later. Its turn on
 * the GPU has come if the GPU would not be left idle before its begin. So times are exact, however
 * late somebody comes to look: whoever queues, asks or waits, and a thread (backlog_thread.c) that
 * is there from the first backlog on and sleeps until the next begin or until the bell is rung.
 *
 * A collective spins from its begin to its end. It leaves the GPU to other streams and processes,
 * as a kernel of few blocks does: if it did not, two jobs that have two GPUs in common could wait
 * for each other for ever. For the utilisation the GPU is busy.
 *
 * What waits for a task's end (an event, a graph, another stream) has a reference to it, as struct
 * when. A stream that is destroyed leaves its backlog to itself. The backlog lock guards all of
 * this. A task without memory is as if it had not been queued.
 */
#include "backlog.h"

#include <stdlib.h>
#include <string.h>

#define POLL_NS ((uint64_t)50000)    /* how often a word is looked at that is waited for */
#define SPIN_NS ((uint64_t)16000000) /* how often a spin is written down */

/* What a GPU of this process is in a communicator. Never freed. */
struct rank {
	struct rank *next;
	uint64_t communicator;
	unsigned gpu;
	unsigned place;
	uint64_t queued, over; /* rounds */
};

/* How many collectives spin on a GPU of this process; until when that is written down, and how long
 * the GPU had done this process's kernels then. */
struct spun {
	unsigned spinning;
	uint64_t until_ns, worked_ns;
};

struct backlog {
	struct backlog *next;
	CUstream stream; /* NULL: none, or none any more */
	CUcontext context;
	uint64_t done_ns; /* when all before the first task is done */
	struct task *head, *tail;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static struct backlog *backlogs; /* these three: lock */
static struct rank *ranks;
static struct spun spins[SIM_GPUS_MAX];

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

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* -- tasks ------------------------------------------------------------------------------------ */

static struct task *task_new(enum task_kind kind)
{
	struct task *task = calloc(1, sizeof *task);

	if (!task)
		return NULL;
	task->kind = kind;
	task->references = 1;
	task->end_ns = TIME_UNKNOWN;
	return task;
}

static struct task *task_hold_locked(struct task *task)
{
	task->references++;
	return task;
}

void task_put_locked(struct task *task)
{
	if (task && !--task->references) {
		task_put_locked(task->other);
		free(task);
	}
}

/* Its backlog has done with it. What it waited for is nothing to those who refer to it. */
static void task_ended_locked(struct task *task)
{
	task_put_locked(task->other);
	task->other = NULL;
	task_put_locked(task);
}

/* -- what tasks do ---------------------------------------------------------------------------- */

static bool turn_has_come(const struct backlog *backlog, uint64_t begin_ns, uint64_t now_ns)
{
	return begin_ns <= now_ns || begin_ns <= state_busy_until(backlog->context->gpu);
}

static void spin_begin_locked(unsigned gpu, uint64_t begin_ns)
{
	struct spun *spun = &spins[gpu];

	if (!spun->spinning++ && begin_ns > spun->until_ns) {
		spun->until_ns = begin_ns;
		spun->worked_ns = state_worked_ns(gpu, begin_ns);
	}
}

/* The GPU has been busy with it all the time; for the utilisation it is what kernels leave. */
static void spin_record_locked(unsigned gpu, uint64_t to_ns)
{
	struct spun *spun = &spins[gpu];

	if (to_ns <= spun->until_ns)
		return;
	uint64_t span = to_ns - spun->until_ns, worked = state_worked_ns(gpu, to_ns);
	uint64_t counted = worked > spun->worked_ns ? worked - spun->worked_ns : 0;

	if (counted < span)
		state_busy(gpu, spun->until_ns + counted, to_ns);
	spun->until_ns = to_ns;
	spun->worked_ns = worked;
}

static void collective_try_locked(struct backlog *backlog, struct task *task, uint64_t begin_ns,
				  uint64_t now_ns)
{
	unsigned gpu = backlog->context->gpu;
	struct rank *rank = task->rank;

	if (!task->begun) {
		if (rank->over != task->round || !turn_has_come(backlog, begin_ns, now_ns))
			return;
		task->begun = true;
		task->begun_ns = state_queue(gpu, begin_ns, 0);
		spin_begin_locked(gpu, task->begun_ns);
		state_collective_begin(rank->place, task->work.ranks, task->round, task->begun_ns);
	}
	uint64_t latest = state_collective_begun(rank->place, task->work.ranks, task->round);
	if (latest == UINT64_MAX) {
		spin_record_locked(gpu, now_ns);
		return;
	}
	task->end_ns = latest + task->work.duration_ns;
	rank->over++;
	spin_record_locked(gpu, task->end_ns);
	spins[gpu].spinning--;
}

static void work_try_locked(struct backlog *backlog, struct task *task, uint64_t begin_ns,
			    uint64_t now_ns)
{
	const struct graph_work *work = &task->work;

	if (task->rank) {
		collective_try_locked(backlog, task, begin_ns, now_ns);
		return;
	}
	if (work->type == CU_GRAPH_NODE_TYPE_KERNEL || work->duration_ns) {
		if (turn_has_come(backlog, begin_ns, now_ns))
			task->end_ns =
				state_queue(backlog->context->gpu, begin_ns, work->duration_ns);
	} else if (begin_ns <= now_ns) {
		task->end_ns = begin_ns + work->host_ns;
	}
	if (task->end_ns != TIME_UNKNOWN && work->type != CU_GRAPH_NODE_TYPE_KERNEL)
		transfer_do(work); /* an address that has become wrong is nobody's news */
}

static void call_try_locked(struct task *task, uint64_t begin_ns, uint64_t now_ns)
{
	if (!task->begun && begin_ns <= now_ns) {
		task->begun = true;
		backlog_thread_call_locked(task);
	}
	if (task->called_ns)
		task->end_ns = task->called_ns;
}

/* For the first time it is looked at its begin, as far as anybody can tell. */
static void value_try_locked(struct task *task, uint64_t begin_ns, uint64_t now_ns)
{
	if (begin_ns > now_ns)
		return;
	if (stream_value_done(&task->value))
		task->end_ns = task->begun ? now_ns : begin_ns;
	task->begun = true;
}

static void task_try_locked(struct backlog *backlog, struct task *task, uint64_t now_ns)
{
	uint64_t begin_ns = later(backlog->done_ns, task->not_before_ns);

	switch (task->kind) {
	case TASK_MARK:
		task->end_ns = begin_ns;
		break;
	case TASK_AFTER:
		if (task->other->end_ns != TIME_UNKNOWN)
			task->end_ns = later(begin_ns, task->other->end_ns);
		break;
	case TASK_WORK:
		work_try_locked(backlog, task, begin_ns, now_ns);
		break;
	case TASK_CALL:
		call_try_locked(task, begin_ns, now_ns);
		break;
	case TASK_VALUE:
		value_try_locked(task, begin_ns, now_ns);
		break;
	}
}

/* How long the first task may be left alone: until its begin has come, if that is all it waits for.
 */
static uint64_t task_rest_locked(const struct backlog *backlog, uint64_t now_ns)
{
	const struct task *task = backlog->head;
	uint64_t begin_ns = later(backlog->done_ns, task->not_before_ns);

	if (task->kind == TASK_AFTER)
		return UINT64_MAX;
	if (begin_ns > now_ns && !task->begun)
		return begin_ns - now_ns;
	if (task->kind == TASK_VALUE)
		return POLL_NS;
	return task->rank ? SPIN_NS : UINT64_MAX;
}

/* -- backlogs --------------------------------------------------------------------------------- */

/* What was before the first task is done then. */
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
		done_locked(backlog, task->end_ns);
		backlog->head = task->next;
		task_ended_locked(task);
		advanced = true;
	}
	return advanced;
}

/* Of a backlog without tasks. */
static void backlog_remove_locked(struct backlog **at)
{
	struct backlog *backlog = *at;

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

/* Takes the task over. */
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

/* Whether what the stream is given waits for the backlog, which is another stream's. */
static bool comes_after(CUstream stream, const struct backlog *backlog)
{
	if (!backlog->stream || backlog->context != stream->context)
		return false;
	return stream == &stream->context->legacy
		       ? stream_blocks(backlog->stream)
		       : stream_blocks(stream) && backlog->stream == &stream->context->legacy;
}

/* Gives it to the stream, behind all that has to be before it. */
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

static struct rank *rank_get_locked(uint64_t communicator, unsigned gpu)
{
	struct rank *rank = ranks;

	while (rank && (rank->communicator != communicator || rank->gpu != gpu))
		rank = rank->next;
	if (rank)
		return rank;
	rank = calloc(1, sizeof *rank);
	if (!rank || state_communicator_join(communicator, &rank->place)) {
		free(rank);
		return NULL;
	}
	rank->communicator = communicator;
	rank->gpu = gpu;
	rank->next = ranks;
	ranks = rank;
	return rank;
}

CUresult backlog_work(CUstream stream, const struct graph_work *work)
{
	struct task *task = task_new(TASK_WORK);

	if (!task)
		return CUDA_ERROR_OUT_OF_MEMORY;
	task->work = *work;
	pthread_mutex_lock(&lock);
	if (work->ranks)
		task->rank = rank_get_locked(work->communicator, stream->context->gpu);
	bool good = !work->ranks || task->rank;
	if (task->rank)
		task->round = task->rank->queued++;
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
			if (task->rank && task->begun)
				spins[context->gpu].spinning--;
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

/* Takes the task's reference over. */
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

/* A mark behind what the stream has been given, or all of the context (NULL); with `ready` also
 * behind what else the stream's next task would wait for. It is in nobody's way. */
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

/* What the parent has queued is the parent's. */
void backlogs_forked(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&ended, NULL);
	backlogs = NULL;
	ranks = NULL;
	memset(spins, 0, sizeof spins);
	backlog_thread_forked();
}
