/*
 * Several processes on one device, in virtual time. Each is a real process with its own pacer,
 * and all share the fake's device. Only the process with the earliest time runs, so a test
 * gives the same figures each time.
 *
 * The device executes kernels in the order in which they are submitted. An event in a stream
 * without work is reached when the work of the other processes, or a time slice, is over.
 */
#pragma once

#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>

#include "pace_fake.h"
#include "sys.h"

#define SLICE_NS (2 * MS) /* time slice of a process while another one waits */

#define PROCESSES_MAX 8

struct shared {
	unsigned count;
	unsigned cpu; /* where all of them run */
	sem_t turn[PROCESSES_MAX];
	uint64_t time_ns[PROCESSES_MAX];
	bool ended[PROCESSES_MAX];
	uint64_t done_ns; /* when the device has done all work */
	unsigned last;    /* the process whose work is the last on the device */
	/* device time of each process, within the measured interval */
	uint64_t busy_ns[PROCESSES_MAX];
};

static struct shared *shared;
static unsigned self;

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

static void meet_others(void)
{
	unsigned next;

	shared->time_ns[self] = time_ns;
	if (fake.done_ns[0] > shared->done_ns) {
		shared->done_ns = fake.done_ns[0];
		shared->last = self;
	}
	next = earliest();
	if (next != self) {
		MUST(sem_post(&shared->turn[next]) == 0);
		while (sem_wait(&shared->turn[self]) != 0)
			;
	}
	fake.done_ns[0] = shared->done_ns;
	fake.others_until_ns = 0;
	if (shared->last != self) {
		uint64_t slice_ns = time_ns - time_ns % SLICE_NS + SLICE_NS;

		fake.others_until_ns = shared->done_ns < slice_ns ? shared->done_ns : slice_ns;
	}
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

/* A process calls many_begin before anything else, and many_end when it has done everything. */
static void many_begin(void)
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
}

static void many_end(void)
{
	shared->ended[self] = true;
	sem_post(&shared->turn[earliest()]);
}

/* Calls run in `count` processes, and returns when all have ended. The caller unmaps `shared`
 * after it. */
static void many_play(unsigned count, void (*run)(void *), void *arg)
{
	pid_t pids[PROCESSES_MAX];

	shared = shared_memory(sizeof(*shared));
	*shared = (struct shared){.count = count, .cpu = (unsigned)sched_getcpu()};
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
