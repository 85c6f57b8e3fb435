/*
 * The simulated NVML's map of itself:
 *
 *   nvml.c             starting and ending, the system, memory
 *   nvml_devices.c     devices and their names
 *   nvml_processes.c   processes
 *   nvml_events.c      errors of GPUs
 *
 * Every exported function is declared here from nvml.def: one defined otherwise does not compile,
 * and a row without a definition does not link.
 */
#pragma once

#include "nvml_abi.h"

#include "config.h"
#include "machine.h"

#include <stdbool.h>

#pragma GCC visibility push(default)
#define NVML_HOOK(name, parameters, arguments) nvmlReturn_t name parameters;
#define NVML_CALL(name, parameters)            nvmlReturn_t name parameters;
#define NVML_SIM(name, parameters)             nvmlReturn_t name parameters;
#include "nvml.def"
#pragma GCC visibility pop

/* Every function first calls this, with __func__. After success the lock is held, and the function
 * ends with nvml_leave. */
nvmlReturn_t nvml_enter(const char *function);
nvmlReturn_t nvml_leave(nvmlReturn_t result);

/* Whether the handle and the result parameter are valid. *ret_gpu: the GPU, also for an instance.
 */
bool nvml_gpu(nvmlDevice_t device, const void *out, unsigned *ret_gpu);

/* The handle of a GPU, by its number. */
nvmlDevice_t nvml_device(unsigned gpu);

/* Copies a text into a buffer of `length` bytes, or returns the error for which it cannot. */
nvmlReturn_t nvml_text(const char *text, char *out, unsigned length);
