/*
 * Several processes on one device, in virtual time. Each is a real process with its own pacer,
 * and all share the fake's device. Only the process with the earliest time runs, so a test
 * gives the same figures each time.
 *
 * The device is that of shared_device.h: while several processes have work, it divides its time
 * between them. A process knows the end of its work for sure once it is over, and an estimate of it
 * before: when it would end if nobody submitted more.
 */
#pragma once

#include <semaphore.h>

#include "pace_fake.h"
#include "shared_device.h"

/* In memory that all processes share. */
struct shared {
	unsigned count;
	unsigned cpu; /* where all of them run */
	sem_t turn[PROCESSES_MAX];
	uint64_t time_ns[PROCESSES_MAX];
	bool ended[PROCESSES_MAX];
	struct shared_device device;
	/* device time of each process, within the measured interval */
	uint64_t busy_ns[PROCESSES_MAX];
};

extern struct shared *shared;
extern unsigned self; /* this process's place in the arrays of *shared */

#define POLL_NS 5000

/* Passes the time until the device has done that much of the process's work, to POLL_NS. False: it
 * has. */
bool pass_until_done(uint64_t work_ns);

/* A process calls many_begin before anything else, and many_end when it has done everything. */
void many_begin(void);
void many_end(void);

/* Calls run in `count` processes, and returns when all have ended. The caller unmaps `shared`
 * after it. */
void many_play(unsigned count, void (*run)(void *), void *arg);
