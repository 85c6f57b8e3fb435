/* NVML's functions, as calls of ours reach them (cuda.h says more: a lacking one returns
 * NVML_ERROR_FUNCTION_NOT_FOUND here), and what we ask it ourselves. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "nvml_abi.h"

#define NVML_SONAME "libnvidia-ml.so.1"

struct nvml_functions {
#define NVML_HOOK(name, parameters, arguments) nvmlReturn_t(*name) parameters;
#define NVML_CALL(name, parameters)            nvmlReturn_t(*name) parameters;
#include "nvml.def"
};

extern struct nvml_functions nvml;

/* Fills the table from libnvidia-ml.so.1 if the process has it loaded, as cuda_bind does. */
bool nvml_bind(void);
void *nvml_driver_symbol(const char *name);
void nvml_forked(void);

/*
 * Loading and starting NVML take the loader's lock (nvmlInit_v2 of driver 580 calls dlopen 18
 * times). A library's constructor runs with that lock, and may wait for a lock of ours. So a thread
 * that holds such a lock must not start NVML. While nvml_forbid_start names the thread, its
 * questions before NVML is started return -EAGAIN. It may call nvml_start before it takes the lock.
 */
void nvml_forbid_start(int thread); /* its number; 0: none is forbidden to */
bool nvml_is_started(void);         /* or cannot be started: then no question starts it */
void nvml_start(void);              /* waits for a moment for another thread that does so */

/*
 * NVML for this library's own questions. They load the library and start it, once, if need be. That
 * takes about 12 ms on an H200, so it never happens while a first context is made. It happens in
 * cuInit only where the slice has several GPUs and the application uses their numbers.
 *
 * NVML's figure for this process on the GPU with that UUID, in bytes (10 us a call). Managed memory
 * is not in the figure. 0; -EAGAIN while another thread asks; -ENOENT when NVML has no figure: NVML
 * is not there, or its pids are not of our namespace.
 */
int nvml_own_usage(const char *uuid, uint64_t *ret_bytes);

/* NVML's figure for one process. */
struct nvml_figure {
	unsigned pid; /* of whichever namespace */
	uint64_t bytes;
};
#define NVML_FIGURES_MAX 1024

/* All of them on that GPU; how many there are is *ret_count. -EAGAIN, -ENOENT as above. */
int nvml_figures(const char *uuid, struct nvml_figure ret_figures[NVML_FIGURES_MAX],
		 unsigned *ret_count);

/* NVML lists this process under that pid, which is not its own: nvml_own_usage goes by it. */
void nvml_know_self(unsigned pid);

/* The GPU's place in NVML's order, and how many GPUs there are. -ENODEV when there is no such GPU,
 * or it is a MIG instance; -EAGAIN, -ENOENT as above. */
int nvml_place(const char *uuid, unsigned *ret_count);

/* The place alone, or -1. */
int nvml_index(const char *uuid);
