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
#include "state.h"

#include <stdbool.h>

#pragma GCC visibility push(default)
#define NVML_HOOK(name, parameters, arguments) nvmlReturn_t name parameters;
#define NVML_CALL(name, parameters)            nvmlReturn_t name parameters;
#define NVML_SIM(name, parameters)             nvmlReturn_t name parameters;
#include "nvml.def"
#pragma GCC visibility pop

/* First in every function, with __func__: on success the lock is held, and nvml_leave is to
 * follow. */
nvmlReturn_t nvml_enter(const char *function);
nvmlReturn_t nvml_leave(nvmlReturn_t result);

/* Handle and out parameter are good; the GPU, also of an instance. */
bool nvml_gpu(nvmlDevice_t device, const void *out, unsigned *ret_gpu);

/* The handle of a GPU, by its number. */
nvmlDevice_t nvml_device(unsigned gpu);

/* A text into a buffer of length bytes, or the error that says why not. */
nvmlReturn_t nvml_text(const char *text, char *out, unsigned length);
