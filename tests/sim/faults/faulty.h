/*
 * Programs that run over the library's build for tests, with a plan (plan.h) of what befalls them;
 * beside the fixtures of tests/sim/life and tests/sim/memory.
 */
#pragma once

#include "life.h"
#include "plan.h"

#define CHARGE (CONTEXT + HIDDEN) /* what a process with a context costs its slice */

/* A program in a role of this test (life.h) with a wire to it. The role's only argument is the
 * number of its end. */
struct faulty {
	struct member member;
	struct plan_report *report;
};

/* step and fault are what VGPU_TEST_STEP and VGPU_TEST_SYSCALL say, or NULL. */
struct faulty faulty_start(const char *role, const char *step, const char *fault);
/* Of those that are started from then on, stderr goes to that file; NULL: to our own. */
void faulty_stderr(const char *path);
/* The status of waitpid(2); the report stays. */
int faulty_wait(struct faulty *program);
/* Forgets the report. */
void faulty_close(struct faulty *program);

/* The word that comes over the wire within ms; false: none has. *ret_over: none will any more. */
bool faulty_hear(const struct faulty *program, int ms, uint64_t *ret_word, bool *ret_over);

/* -- places ------------------------------------------------------------------------------------ */

/* Gives this process, and those that it starts, a machine and a region of its own, of that quota:
 * so can several scenes be played at once. */
void place_set(uint64_t quota);
void place_limit(uint64_t bytes); /* another limit for those that it starts from now on */
/* Nobody is left: who comes next has all of it, and leaves nothing. */
void place_check_whole(uint64_t quota);

/* -- words in memory that is shared with those that it forks ----------------------------------- */

void *memory_share(size_t size);
uint64_t word_read(const uint64_t *word);
void word_write(uint64_t *word, uint64_t value);
uint64_t word_add(uint64_t *word, uint64_t more); /* the new value */
void word_raise(uint64_t *word, uint64_t to);     /* where it is less */
/* Until it is as much; what: what is wrong when it is not within WAIT_S. */
void word_await(const uint64_t *word, uint64_t least, const char *what);
