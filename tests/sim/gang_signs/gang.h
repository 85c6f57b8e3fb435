/*
 * Shared by the tests of the gang's signs: a process with a context on each of three devices.
 * It launches to all of them, and then finds in the region which of its devices are members.
 */
#pragma once

#include "stream_api.h"

#define DEVICES 3
#define ALL     7 /* a bit for each device */

extern CUcontext contexts[DEVICES];

/* Makes a machine with three devices. cores: the slice's compute quota; NULL: none. */
void machine(const char *cores);

/* Starts CUDA, and makes a context on each device; the first is current. */
void start_all(void);
void use(CUdevice device); /* makes its context current */

/* Launches an ordinary kernel to each device. Returns the set of devices on which this
 * process's work is in the gang after that, a bit for each. */
unsigned members(void);

/* The set of devices on which a process of the slice is in the gang, without a launch. */
unsigned members_of(pid_t pid);

/* Launches until these devices are the members. A change of the slice's limits or policy takes
 * 100 ms. */
void become(unsigned expected);

/* A process of the slice that has CUDA and executes steps. Each step returns a number. */
typedef uint64_t step_fn(uint64_t argument);
struct member rank(void);
uint64_t order(struct member *member, step_fn *step, uint64_t argument);
void dismiss(struct member *member);
