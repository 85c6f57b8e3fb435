/*
 * What the tests of the gang's signs share: a process with a context on each of three devices,
 * which launches to all of them and then finds in the region which of its devices are members.
 */
#pragma once

#include "stream_api.h"

#define DEVICES 3
#define ALL     7 /* a bit for each device */

extern CUcontext contexts[DEVICES];

/* Three devices, of which the slice may have so much of the time; NULL: all. */
void machine(const char *cores);

/* CUDA, a context on each device, and the first of them current. */
void start_all(void);
void use(CUdevice device); /* its context becomes current */

/* Launches a kernel that is no collective's to each device, and returns the devices of which this
 * process's work is in the gang then. */
unsigned members(void);

/* The same without a launch, of any process of the slice. */
unsigned members_of(pid_t pid);

/* Launches until these are the members. A change of the slice's limits or policy takes 100 ms. */
void become(unsigned expected);

/* A process of the slice that has CUDA, and does what it is told: each step returns a number. */
typedef uint64_t step_fn(uint64_t argument);
struct member rank(void);
uint64_t order(struct member *member, step_fn *step, uint64_t argument);
void dismiss(struct member *member);
