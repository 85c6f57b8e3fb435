/*
 * Tasks: pieces of work whose end is not known when they are queued. backlog.c has the lists of
 * tasks, and asks here whether the first task of a list ends.
 *
 *   a task                    ends when                            its end
 *   mark                      always                               its begin
 *   wait for another task     that task has ended                  the later of its begin and that
 *                                                                  task's end
 *   kernel, copy in the GPU   its turn has come                    as machine_queue says
 *   collective                its turn has come, and that of all   the latest begin of a rank, and
 *                             other ranks                          its duration
 *   copy from or to the host  its begin has come                   its begin, and its duration
 *   host function             the function has returned            when it returned
 *   wait for a value          its begin has come, and the value    when the value was seen
 *   write of a value          its begin has come                   its begin
 *
 * The begin of a task is the end of the task before it, or when it was queued if that is later. Its
 * turn on the GPU has come when the GPU would otherwise be idle before that begin.
 *
 * A collective spins from its begin to its end. It leaves the GPU to other streams and processes,
 * as a kernel of few blocks does. If it did not, two jobs with two GPUs in common could wait for
 * each other for ever. The figure of utilisation counts the GPU as busy while a collective spins.
 *
 * The backlog lock guards the tasks, the ranks and the spins.
 */
#include "backlog.h"

#include <stdlib.h>
#include <string.h>

#define POLL_NS ((uint64_t)50000)    /* how often a word is looked at that a task waits for */
#define SPIN_NS ((uint64_t)16000000) /* how often the time of a spinning collective is recorded */

/* The rank of a GPU of this process in a communicator. It is never freed. */
struct rank {
	struct rank *next;
	uint64_t communicator;
	unsigned gpu;
	unsigned place;
	uint64_t queued, over; /* how many of its collectives are queued, and have ended */
};

/* How many collectives spin on a GPU for this process. Their time is recorded until until_ns; by
 * then the GPU had worked on this process's kernels for worked_ns. */
struct spun {
	unsigned spinning;
	uint64_t until_ns, worked_ns;
};

static struct rank *ranks;
static struct spun spins[SIM_GPUS_MAX];

/* -- tasks ------------------------------------------------------------------------------------ */

struct task *task_new(enum task_kind kind)
{
	struct task *task = calloc(1, sizeof *task);

	if (!task)
		return NULL;
	task->kind = kind;
	task->references = 1;
	task->end_ns = TIME_UNKNOWN;
	return task;
}

struct task *task_hold_locked(struct task *task)
{
	task->references++;
	return task;
}

void task_put_locked(struct task *task)
{
	SIM_ASSERT(!task || task->references);
	if (task && !--task->references) {
		task_put_locked(task->other);
		free(task);
	}
}

void task_ended_locked(struct task *task)
{
	SIM_ASSERT(task->end_ns != TIME_UNKNOWN);
	task_put_locked(task->other);
	task->other = NULL;
	task_put_locked(task);
}

/* -- what tasks do ---------------------------------------------------------------------------- */

static bool turn_has_come(const struct backlog *backlog, uint64_t begin_ns, uint64_t now_ns)
{
	return begin_ns <= now_ns || begin_ns <= machine_busy_until(backlog->context->gpu);
}

static void spin_begin_locked(unsigned gpu, uint64_t begin_ns)
{
	struct spun *spun = &spins[gpu];

	if (!spun->spinning++ && begin_ns > spun->until_ns) {
		spun->until_ns = begin_ns;
		spun->worked_ns = machine_worked_ns(gpu, begin_ns);
	}
}

static void spin_end_locked(unsigned gpu)
{
	SIM_ASSERT(spins[gpu].spinning);
	spins[gpu].spinning--;
}

/* Records the time until to_ns in which collectives spun and no kernel of the process ran. */
static void spin_record_locked(unsigned gpu, uint64_t to_ns)
{
	struct spun *spun = &spins[gpu];

	if (to_ns <= spun->until_ns)
		return;
	uint64_t span = to_ns - spun->until_ns, worked = machine_worked_ns(gpu, to_ns);
	uint64_t counted = worked > spun->worked_ns ? worked - spun->worked_ns : 0;

	if (counted < span)
		machine_busy(gpu, spun->until_ns + counted, to_ns);
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
		task->begun_ns = machine_queue(gpu, begin_ns, 0);
		spin_begin_locked(gpu, task->begun_ns);
		machine_collective_begin(rank->place, task->work.ranks, task->round,
					 task->begun_ns);
	}
	uint64_t latest = machine_collective_begun(rank->place, task->work.ranks, task->round);
	if (latest == UINT64_MAX) {
		spin_record_locked(gpu, now_ns);
		return;
	}
	task->end_ns = latest + task->work.duration_ns;
	rank->over++;
	SIM_ASSERT(latest >= task->begun_ns);
	spin_record_locked(gpu, task->end_ns);
	spin_end_locked(gpu);
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
				machine_queue(backlog->context->gpu, begin_ns, work->duration_ns);
	} else if (begin_ns <= now_ns) {
		task->end_ns = begin_ns + work->host_ns;
	}
	if (task->end_ns != TIME_UNKNOWN && work->type != CU_GRAPH_NODE_TYPE_KERNEL)
		transfer_do(
			work); /* an error, of an address that has become wrong, is not reported */
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

/* A value that is there when it is looked at for the first time was there at the begin. */
static void value_try_locked(struct task *task, uint64_t begin_ns, uint64_t now_ns)
{
	if (begin_ns > now_ns)
		return;
	if (stream_value_done(&task->value))
		task->end_ns = task->begun ? now_ns : begin_ns;
	task->begun = true;
}

void task_try_locked(struct backlog *backlog, struct task *task, uint64_t now_ns)
{
	uint64_t begin_ns = later(backlog->done_ns, task->not_before_ns);

	SIM_ASSERT(task->end_ns == TIME_UNKNOWN); /* a known end never changes */
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

uint64_t task_rest_locked(const struct backlog *backlog, uint64_t now_ns)
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

/* -- collectives of the process --------------------------------------------------------------- */

static struct rank *rank_get_locked(uint64_t communicator, unsigned gpu)
{
	struct rank *rank = ranks;

	while (rank && (rank->communicator != communicator || rank->gpu != gpu))
		rank = rank->next;
	if (rank)
		return rank;
	rank = calloc(1, sizeof *rank);
	if (!rank || machine_communicator_join(communicator, &rank->place)) {
		free(rank);
		return NULL;
	}
	rank->communicator = communicator;
	rank->gpu = gpu;
	rank->next = ranks;
	ranks = rank;
	return rank;
}

bool task_join_locked(struct task *task, unsigned gpu)
{
	task->rank = rank_get_locked(task->work.communicator, gpu);
	if (!task->rank)
		return false;
	task->round = task->rank->queued++;
	return true;
}

void task_drop_locked(const struct task *task, unsigned gpu)
{
	if (task->rank && task->begun)
		spin_end_locked(gpu);
}

void tasks_forked(void)
{
	ranks = NULL;
	memset(spins, 0, sizeof spins);
}
