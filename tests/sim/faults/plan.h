/*
 * What happens to the library at which moment, in its build for tests (libvgpu_faulty.so), and what
 * the test learns of it. The environment says it:
 *
 *   VGPU_TEST_STEP     "kill|stop|delay STEP [N]": the N-th time (counted from 1, which it is
 *                      without N) that somebody comes to the step of region/steps.h, that process
 * is killed, stopped, or delayed for PLAN_DELAY_MS VGPU_TEST_SYSCALL  "N ERRNO": the N-th system
 * call of the library is not made, and fails with that errno, a number VGPU_TEST_REPORT   the path
 * of a file of a struct plan_report's size, whose words are counted up
 *
 * "Somebody" is the program and whatever it forks: they count in the report, together. What does
 * not make sense ends the program at its start, with PLAN_REFUSED.
 */
#pragma once

#include <stdint.h>

#include "steps.h"

#define PLAN_DELAY_MS    20
#define PLAN_REFUSED     99
#define PLAN_TRACE_CALLS 8192

struct plan_report {
	uint64_t steps[REGION_STEP_COUNT]; /* how often each was come to */
	uint64_t calls;                    /* how many system calls were about to be made */
	uint64_t at_step;                 /* the pid of whom the step's action befalls; 0: nobody */
	uint64_t failed;                  /* 1: the call was made to fail */
	uint16_t trace[PLAN_TRACE_CALLS]; /* the number of each */
};
