/*
 * What tests of two processes on one device share. Each is a real process with its own pacer; both
 * share the fake's device. Only the process whose time is the earlier one runs, so a test gives the
 * same figures each time.
 *
 * The device takes kernels in the order in which they are submitted. An event in a stream without
 * work is reached when the other process's work is over, or its time slice is.
 */
#pragma once

#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>

#include "pace_fake.h"

#define SLICE_NS (2 * MS) /* of a process, where another one waits */

struct shared {
	sem_t turn[2];
	uint64_t time_ns[2];
	bool ended[2];
	uint64_t done_ns;    /* the device's */
	unsigned last;       /* whose work that is */
	uint64_t busy_ns[2]; /* between from_ns and until_ns */
};

static struct shared *shared;
static unsigned self;

static void meet_peer(void)
{
	unsigned other = !self;

	shared->time_ns[self] = time_ns;
	if (fake.done_ns[0] > shared->done_ns) {
		shared->done_ns = fake.done_ns[0];
		shared->last = self;
	}
	if (!shared->ended[other] && shared->time_ns[other] < time_ns) {
		MUST(sem_post(&shared->turn[other]) == 0);
		while (sem_wait(&shared->turn[self]) != 0)
			;
	}
	fake.done_ns[0] = shared->done_ns;
	fake.others_until_ns = 0;
	if (shared->last == other) {
		uint64_t slice_ns = time_ns - time_ns % SLICE_NS + SLICE_NS;

		fake.others_until_ns = shared->done_ns < slice_ns ? shared->done_ns : slice_ns;
	}
}

/* In a process: before it does anything, and when it has done all. */
static void two_begin(void)
{
	while (sem_wait(&shared->turn[self]) != 0)
		;
	meet = meet_peer;
}

static void two_end(void)
{
	shared->ended[self] = true;
	sem_post(&shared->turn[!self]);
}

/* Runs it in two processes, until both have ended. `shared` is to be unmapped after it. */
static void two_play(void (*run)(void *), void *arg)
{
	pid_t pids[2];

	shared = shared_memory(sizeof(*shared));
	*shared = (struct shared){.time_ns = {FIRST_NS, FIRST_NS}};
	for (unsigned i = 0; i < 2; i++) /* before either of them can give it to the other */
		assert_int_equal(sem_init(&shared->turn[i], 1, i == 0), 0);
	for (self = 0; self < 2; self++)
		pids[self] = spawn(run, arg);
	for (unsigned i = 0; i < 2; i++) {
		int status;

		assert_true(wait(&status) > 0);
		if (status) /* the other would wait for it */
			for (unsigned k = 0; k < 2; k++)
				kill(pids[k], SIGKILL);
		assert_int_equal(status, 0);
	}
}
