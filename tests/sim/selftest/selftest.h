/*
 * Shared by the simulated driver's own tests. A test is a program. selftest_begin gives it a
 * machine of its own (a shared state in a new directory, removed at exit) and a clean
 * environment. The first CHECK that fails ends it with status 1.
 *
 * A process that has called cuInit cannot have children that use CUDA. So a test with several
 * processes makes them first and watches them through NVML.
 */
#pragma once

#include "cuda_abi.h"
#include "nvml_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

#define CHECK_END exit /* exit handlers remove the directory */
#include "check.h"

#define CU_HOOK(name, class, parameters, arguments) CUresult name parameters;
#define CU_CALL(name, class, parameters)            CUresult name parameters;
#define CU_SIM(name, class, parameters)             CUresult name parameters;
#include "cuda.def"
#define NVML_HOOK(name, parameters, arguments) nvmlReturn_t name parameters;
#define NVML_CALL(name, parameters)            nvmlReturn_t name parameters;
#define NVML_SIM(name, parameters)             nvmlReturn_t name parameters;
#include "nvml.def"

/* One row of a test: takes the act, and checks what a figure is after it, as in
 * CHECK_AFTER(p = take(1), held(), 2 * MIB). */
#define CHECK_AFTER(act, figure, expected)     \
	do {                                   \
		act;                           \
		CHECK_EQUAL(figure, expected); \
	} while (0)

#define KIB     ((size_t)1 << 10)
#define MIB     ((size_t)1 << 20)
#define GIB     ((size_t)1 << 30)
#define CONTEXT (518 * MIB) /* bytes of a context in its process's figure */
#define FIRST   (9 * MIB)   /* further bytes of the first context, in no process's figure */

/* Makes the machine. gpus: VGPU_SIM_GPUS; NULL: the default. */
void selftest_begin(const char *gpus);

/* False if the process has a real driver: tests/gpu/selftest.sh runs the tests on a GPU as well.
 * Tests that take more than a GPU has, or do what may not be done to one, are then left out. */
bool selftest_is_simulated(void);

/* Calls cuInit, and makes the primary context of device 0 current. */
CUcontext selftest_context(void);

/* Bytes in use on the GPU, and those of a process in its list (-1: not listed), both by
 * NVML. */
uint64_t selftest_used(unsigned gpu);
long long selftest_process_bytes(unsigned gpu, pid_t pid);

uint64_t selftest_now_ns(void);

/*
 * For tests that look at the GPU while it works; main returns the result. On a busy machine,
 * kernels may be over before the test looks. So a test that fails is repeated with longer
 * kernels, in a new process, and the third attempt counts. Such a test measures its kernels in
 * selftest_ms.
 */
extern uint64_t selftest_ms; /* in ns; one millisecond at first */
int selftest_unhurried(void (*test)(void));

/*
 * A child that calls body(argument), reports that it returned, and then waits for
 * selftest_child_end. Its exit status is 0 then. selftest_child_start returns after body has.
 */
struct selftest_child {
	pid_t pid;
	int to, from;
	int departure; /* see tests/unit/departure.h */
};
struct selftest_child selftest_child_start(void (*body)(void *argument), void *argument);
void selftest_child_end(struct selftest_child *child);
void selftest_child_kill(struct selftest_child *child);

/* Runs body in a child that must end with status 0. */
void selftest_child_run(void (*body)(void *argument), void *argument);
