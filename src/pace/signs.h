/*
 * Signs that kernels on one device may wait for kernels on another device, or of another process:
 * docs/design/gangs.md lists them. A device of which there is a sign joins the slice's gang at the
 * next launch to it that a compute quota concerns. So of a rank of a job that gives all devices
 * access to its memory, and runs kernels on one, only that device joins.
 *
 * Functions and kernels are known by struct cost_of's `function`. All functions here are
 * thread-safe, and take no lock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* There is a sign for the device, a CUDA ordinal. A number that is no device's is ignored. */
void signs_see(int device);

/* The driver has handed out a CUfunction or CUkernel of that name. The kernel is remembered if it
 * is one of a library for collectives. */
void signs_name(uint64_t function, const char *name);

/* The driver has handed out the CUfunction of a CUkernel. */
void signs_name_as(uint64_t function, uint64_t kernel);

/* Whether the function is one of a library for collectives. */
bool signs_is_collective(uint64_t function);

/* To be called before work of that function is submitted to the device. If there is a sign for the
 * device, or the work is a collective itself, the device joins the gang. Returns whether the work
 * is a collective. */
bool signs_launch(int device, uint64_t function);

void signs_forked(void); /* in a forked child */
