/*
 * The plan of faults for the library's build for tests (libvgpu_faulty.so), and the report for
 * the test. The environment has the plan:
 *
 *     VGPU_TEST_STEP      "kill|stop|delay STEP [N]": the process that reaches that step of
 *                         region/steps.h as the N-th (from 1; without N, the first) is killed,
 *                         stopped, or delayed for PLAN_DELAY_MS
 *     VGPU_TEST_SYSCALL   "N ERRNO": the library's N-th system call is not made, and fails with
 *                         that errno, a number
 *     VGPU_TEST_REPORT    the path of a file of the size of struct plan_report, whose words are
 *                         counted up
 *
 * The program and the processes that it forks count together. A plan that does not parse ends
 * the program at its start, with PLAN_REFUSED.
 */
#pragma once

#include <stdint.h>

#include "steps.h"

#define PLAN_DELAY_MS    20
#define PLAN_REFUSED     99 /* exit status */
#define PLAN_TRACE_CALLS 8192

struct plan_report {
	uint64_t steps[REGION_STEP_COUNT]; /* how often each step was reached */
	uint64_t calls;                    /* system calls that were to be made */
	/* pid of the process that the step's action hits; 0: none */
	uint64_t at_step;
	uint64_t failed;                  /* 1: the planned call has failed */
	uint16_t trace[PLAN_TRACE_CALLS]; /* the number of each system call, in order */
};
