/*
 * What tests of several processes on one device share. Each is a real process with its own pacer;
 * all share the fake's device. Only the process whose time is the earliest one runs, so a test
 * gives the same figures each time.
 *
 * The device takes kernels in the order in which they are submitted. An event in a stream without
 * work is reached when the other processes' work is over, or a time slice is.
 */
#pragma once

#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>

#include "pace_fake.h"
#include "sys.h"

#define SLICE_NS (2 * MS) /* of a process, where another one waits */

#define PROCESSES_MAX 8

struct shared {
	unsigned count;
	sem_t turn[PROCESSES_MAX];
	uint64_t time_ns[PROCESSES_MAX];
	bool ended[PROCESSES_MAX];
	uint64_t done_ns;                /* the device's */
	unsigned last;                   /* whose work that is */
	uint64_t busy_ns[PROCESSES_MAX]; /* between from_ns and until_ns */
};

static struct shared *shared;
static unsigned self;

/* The process that is to run: that with the earliest time; of equal ones, the one that runs. */
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

#define WAKE_NS 50000 /* from one look of a sleeper at its bell to the next */

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

/* In a process: before it does anything, and when it has done all. */
static void many_begin(void)
{
	while (sem_wait(&shared->turn[self]) != 0)
		;
	meet = meet_others;
}

static void many_end(void)
{
	shared->ended[self] = true;
	sem_post(&shared->turn[earliest()]);
}

/* Runs it in so many processes, until all have ended. `shared` is to be unmapped after it. */
static void many_play(unsigned count, void (*run)(void *), void *arg)
{
	pid_t pids[PROCESSES_MAX];

	shared = shared_memory(sizeof(*shared));
	*shared = (struct shared){.count = count};
	for (unsigned i = 0; i < count; i++) { /* before any of them can give it to another */
		shared->time_ns[i] = FIRST_NS;
		assert_int_equal(sem_init(&shared->turn[i], 1, i == 0), 0);
	}
	for (self = 0; self < count; self++)
		pids[self] = spawn(run, arg);
	for (unsigned i = 0; i < count; i++) {
		int status;

		assert_true(wait(&status) > 0);
		if (status) /* the others would wait for it */
			for (unsigned k = 0; k < count; k++)
				kill(pids[k], SIGKILL);
		assert_int_equal(status, 0);
	}
}
