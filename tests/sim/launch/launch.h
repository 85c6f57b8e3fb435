/*
 * Shared by the tests of launches: a list of the functions that launch, each callable through a
 * pointer, however the pointer was found; launches on threads of their own; and the words that
 * a monitor writes.
 */
#pragma once

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "stream_api.h"

#define LONG_MS 10000 /* an event that must happen has happened by then */
#define STAY_MS 150   /* an event that must not happen would nearly always have happened by then */

#define POKE(word, value) __atomic_store_n(&(word), value, __ATOMIC_SEQ_CST)
#define PEEK(word)        __atomic_load_n(&(word), __ATOMIC_SEQ_CST)

extern CUfunction nop, spin;
extern CUstream stream;
extern CUcontext context;
extern CUgraphExec graph; /* one kernel */

/* Makes all of the above, in a slice with that memory limit; NULL: without a slice. */
void launch_start(const char *limit);
/* Launches an empty kernel in `stream`. */
CUresult launch(void);

/* child_of calls body in a forked child, and returns its exit status. as_the_driver_says is
 * such a body: it checks that launches fail as without the library. */
int child_of(void (*body)(void));
void as_the_driver_says(void);

/* -- the words -------------------------------------------------------------------------------- */

extern struct vgpu_hami_region *words; /* writable; set by words_map and launch_start */

void words_map(void);
void suspend(pid_t pid);
void resume(pid_t pid);

/* -- the functions that launch ---------------------------------------------------------------- */

struct launcher {
	const char *name, *plain; /* name in the driver, and for cuGetProcAddress */
	void *linked;
	CUresult (*call)(void *function, CUstream where);
	bool per_thread;
	bool to_default; /* it takes no stream */
	int version;     /* CUDA version for cuGetProcAddress; 0: the newest */
};

#define LAUNCHERS 12
extern const struct launcher launchers[LAUNCHERS];

/* The ways by which programs find a function: linked, by dlsym, by cuGetProcAddress. */
#define WAYS 3
extern void *(*const ways[WAYS])(const struct launcher *launcher);

/* -- launches on threads of their own --------------------------------------------------------- */

struct attempt {
	const struct launcher *launcher;
	void *function;
	CUstream where;
	pthread_t thread;
	CUresult result;
	bool done;
};

void attempt_begin(struct attempt *attempt, const struct launcher *launcher, void *function,
		   CUstream where);
void attempt_waits(const struct attempt *attempt); /* checks that it still waits */
/* Begins the attempt in `stream`, and checks that it waits. */
void attempt_stays(struct attempt *attempt, const struct launcher *launcher);
void attempt_ends(struct attempt *attempt, CUresult expected);

/* Checks that all functions of the list, found in all ways, wait after hold() and continue
 * after let_go(). The list has at most 64. */
void held(const struct launcher *list, size_t count, void (*hold)(void), void (*let_go)(void));
/* Arguments for held(). */
void suspend_self(void);
void resume_self(void);
void block(void);
void unblock(void);
