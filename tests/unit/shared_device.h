/*
 * A device that several processes share, in virtual time, as a GPU is shared without turns: it runs
 * the work of one process at a time. Every QUANTUM_NS or so, and when that process has no work
 * left, it changes to the next one that has work. A change takes CHANGE_NS.
 *
 * It lies in shared memory. The caller sees to it that one process at a time uses it, and that it
 * is brought to the present (device_advance) before work is submitted.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define PROCESSES_MAX 8
#define QUANTUM_NS    2000000
#define CHANGE_NS     50000
#define SPANS         8192 /* of a process's work that are remembered */

/* A time during which the device ran one process's work, without a break. */
struct device_span {
	uint64_t from_ns, until_ns;
	uint64_t done_ns; /* work of the process that was done before it */
};

struct device_queue {
	uint64_t given_ns, done_ns; /* work in all; of it, what is done */
	struct device_span spans[SPANS];
	uint64_t span_count;
};

struct shared_device {
	uint64_t time_ns;
	unsigned owner;      /* whose work it runs, or ran last */
	uint64_t from_ns;    /* since when the owner has it; later than time_ns during a change */
	uint64_t quantum_ns; /* for how long it has it while others want it */
	uint64_t chance;     /* state of the random numbers */
	struct device_queue queue[PROCESSES_MAX];
};

/* *device is all zeros. */
void device_begin(struct shared_device *device, uint64_t at_ns);

/* The process's work that is not done. */
uint64_t device_left_ns(const struct shared_device *device, unsigned process);

/* Whether another process has work. */
bool device_is_wanted(const struct shared_device *device, unsigned except);

/* Brings the device to that time. */
void device_advance(struct shared_device *device, uint64_t until_ns);

/* When the process's work would be done if nobody submitted more. */
uint64_t device_expected_ns(const struct shared_device *device, unsigned process);
