/*
 * Programs that run with the library's build for tests, and with a plan (plan.h) of faults.
 * This header adds to the fixtures of tests/sim/life and tests/sim/memory.
 */
#pragma once

#include "life.h"
#include "plan.h"

#define CHARGE (CONTEXT + HIDDEN) /* bytes that a slice is charged for a process with a context */

/* A program in a role of this test (life.h), and a wire to it. The role's only argument is the
 * number of its end of the wire. */
struct faulty {
	struct member member;
	struct plan_report *report;
};

/* Starts a program. step and fault: the values of VGPU_TEST_STEP and VGPU_TEST_SYSCALL, or
 * NULL. */
struct faulty faulty_start(const char *role, const char *step, const char *fault);
/* Sends stderr of programs that are started later to that file; NULL: to this process's own. */
void faulty_stderr(const char *path);
/* Waits for the program's end. Returns the status of waitpid(2); the report stays valid. */
int faulty_wait(struct faulty *program);
/* Unmaps the report. */
void faulty_close(struct faulty *program);

/* Receives a word from the wire within `ms`. Returns false if none came. *ret_over: the wire
 * was closed. */
bool faulty_hear(const struct faulty *program, int ms, uint64_t *ret_word, bool *ret_over);

/* -- places ------------------------------------------------------------------------------------ */

/* Gives this process, and those that it starts, a machine and a region of its own with that
 * quota, in bytes. So several scenes can run at once. */
void place_set(uint64_t quota);
void place_limit(uint64_t bytes); /* sets another limit for processes that are started later */
/* Checks that no process is left: the next one can allocate the whole quota, and leaves
 * nothing. */
void place_check_whole(uint64_t quota);

/* -- words in memory that is shared with those that it forks ----------------------------------- */

void *memory_share(size_t size);
uint64_t word_read(const uint64_t *word);
void word_write(uint64_t *word, uint64_t value);
uint64_t word_add(uint64_t *word, uint64_t more); /* returns the new value */
void word_raise(uint64_t *word, uint64_t to);     /* raises the word if it is less */
/* Waits until the word is at least `least`. what: the message if that does not happen within
 * WAIT_S. */
void word_await(const uint64_t *word, uint64_t least, const char *what);
