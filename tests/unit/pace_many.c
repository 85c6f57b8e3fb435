/*
 * Several processes on one device: pace_many.h says how they share it.
 *
 * The shared device has the queues of all processes. Each process finds the ends of its own work
 * there, and writes them to its fake: see_device does so each time the process has the turn. The
 * process with the turn is the only one that runs and uses *shared, so no lock protects that. A
 * process whose time is no longer the earliest passes the turn on in meet_others.
 *
 * A process that fails cannot pass the turn on, and the others wait for it. many_play kills them.
 */
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "pace_many.h"
#include "sys.h"

struct shared *shared;
unsigned self;

/* The process that runs next: the one with the earliest time. Of equal ones, the present
 * process. */
static unsigned earliest(void)
{
	unsigned found = self;

	for (unsigned i = 0; i < shared->count; i++)
		if (!shared->ended[i] &&
		    (shared->ended[found] || shared->time_ns[i] < shared->time_ns[found]))
			found = i;
	return found;
}

/* -- the device ------------------------------------------------------------------------------- */

/* An event of the process that the device has not reached. */
struct mark {
	struct fake_event *event;
	uint64_t work_ns; /* of the process, that comes before it */
	uint64_t took_ns; /* device time of the event itself */
};

#define MARK_NS 2000 /* of the device, for an event behind a kernel (H200) */

static struct mark marks[EVENTS];       /* a ring */
static uint64_t mark_count, marks_done; /* in all */
static uint64_t marks_ns;               /* device time of the events that it has reached */
static uint64_t span_at;                /* the first span in which a mark may be reached */

/* When the device had done that much of the process's work. */
static uint64_t when_done(uint64_t work_ns)
{
	const struct device_queue *queue = &shared->device.queue[self];
	const struct device_span *span;

	CHECK(queue->span_count - span_at < SPANS);
	for (;; span_at++) {
		span = &queue->spans[span_at % SPANS];
		if (work_ns <= span->done_ns + (span->until_ns - span->from_ns))
			return span->from_ns + (work_ns - span->done_ns);
	}
}

/* Brings what the process has noted of the device up to the present time. */
static void see_device(void)
{
	const struct device_queue *queue = &shared->device.queue[self];

	device_advance(&shared->device, time_ns);
	while (marks_done < mark_count && marks[marks_done % EVENTS].work_ns <= queue->done_ns) {
		const struct mark *mark = &marks[marks_done++ % EVENTS];

		marks_ns += mark->took_ns;
		if (mark->event->work_ns == mark->work_ns)
			mark->event->at_ns = when_done(mark->work_ns);
	}
	fake.busy_ns[0] = queue->done_ns - marks_ns;
	if (device_left_ns(&shared->device, self))
		fake.done_ns[0] = device_expected_ns(&shared->device, self);
	else if (fake.done_ns[0] > time_ns)
		fake.done_ns[0] = when_done(queue->done_ns);
	fake.streams[0][0].done_ns = fake.done_ns[0];
}

static void submit_shared(uint64_t ns)
{
	shared->device.queue[self].given_ns += ns;
	see_device();
}

/* A mark of a process without work is reached at once, if the device is not another's. Else the
 * device changes to the process for it. Behind a kernel, it takes the device MARK_NS, which is no
 * work of the program. */
static void mark_shared(struct fake_event *event)
{
	struct device_queue *queue = &shared->device.queue[self];
	uint64_t before_ns = queue->given_ns;

	if (device_left_ns(&shared->device, self))
		queue->given_ns += MARK_NS;
	else if (device_is_wanted(&shared->device, self))
		queue->given_ns++;
	event->work_ns = queue->given_ns;
	event->at_ns = device_left_ns(&shared->device, self) ? UINT64_MAX / 2 : time_ns;
	if (event->at_ns == time_ns) /* it is reached */
		return;
	CHECK(mark_count - marks_done < EVENTS);
	marks[mark_count++ % EVENTS] =
		(struct mark){event, event->work_ns, queue->given_ns - before_ns};
	see_device();
}

/* -- which process runs ----------------------------------------------------------------------- */

static void meet_others(void)
{
	unsigned next;

	shared->time_ns[self] = time_ns;
	next = earliest();
	if (next != self) {
		CHECK(sem_post(&shared->turn[next]) == 0);
		while (sem_wait(&shared->turn[self]) != 0)
			;
	}
	see_device();
}

bool pass_until_done(uint64_t work_ns)
{
	const struct device_queue *queue = &shared->device.queue[self];

	if (queue->done_ns >= work_ns)
		return false;
	while (queue->done_ns < work_ns) {
		uint64_t left_ns = work_ns - queue->done_ns;

		pass(left_ns > POLL_NS ? left_ns : POLL_NS);
		meet();
	}
	return true;
}

#define WAKE_NS 50000 /* interval at which a sleeper looks at its bell */

int __wrap_sys_futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns);

int __wrap_sys_futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	uint64_t until_ns = time_ns + timeout_ns;

	while (time_ns < until_ns && __atomic_load_n(word, __ATOMIC_SEQ_CST) == expected) {
		uint64_t left_ns = until_ns - time_ns;

		pass(left_ns < WAKE_NS ? left_ns : WAKE_NS);
		meet();
	}
	pass(OVERDUE_WAKE_NS / 2);
	meet();
	return 0;
}

void many_begin(void)
{
	cpu_set_t cpus;

	/* Only one process runs at a time. On one CPU, it wakes the next without interrupting
	 * another CPU. */
	CPU_ZERO(&cpus);
	CPU_SET(shared->cpu, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus); /* without it, the test only takes longer */
	while (sem_wait(&shared->turn[self]) != 0)
		;
	meet = meet_others;
	share_submit = submit_shared;
	share_mark = mark_shared;
}

void many_end(void)
{
	shared->ended[self] = true;
	sem_post(&shared->turn[earliest()]);
}

void many_play(unsigned count, void (*run)(void *), void *arg)
{
	pid_t pids[PROCESSES_MAX];

	shared = shared_memory(sizeof(*shared));
	shared->count = count;
	shared->cpu = (unsigned)sched_getcpu();
	device_begin(&shared->device, FIRST_NS);
	/* all of them, before a process can pass the turn on */
	for (unsigned i = 0; i < count; i++) {
		shared->time_ns[i] = FIRST_NS;
		assert_int_equal(sem_init(&shared->turn[i], 1, i == 0), 0);
	}
	for (self = 0; self < count; self++)
		pids[self] = spawn(run, arg);
	for (unsigned i = 0; i < count; i++) {
		int status;

		assert_true(wait(&status) > 0);
		if (status) /* the others would wait for this process */
			for (unsigned k = 0; k < count; k++)
				kill(pids[k], SIGKILL);
		assert_int_equal(status, 0);
	}
}
