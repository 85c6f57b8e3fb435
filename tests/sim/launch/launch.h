/*
 * What the tests of launches share: a list of the functions that launch, each callable through a
 * pointer, however that was come by; launches on threads of their own; and the words that a monitor
 * writes.
 */
#pragma once

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "stream_api.h"

#define LONG_MS 10000 /* what is sure to happen, has happened by then */
#define STAY_MS 150   /* what must not happen, would have by then, nearly always */

#define POKE(word, value) __atomic_store_n(&(word), value, __ATOMIC_SEQ_CST)
#define PEEK(word)        __atomic_load_n(&(word), __ATOMIC_SEQ_CST)

extern CUfunction nop, spin;
extern CUstream stream;
extern CUcontext context;
extern CUgraphExec graph; /* one kernel */

/* With a slice, unless that is NULL: all of the above. */
void launch_start(const char *limit);
/* An empty kernel, in `stream`. */
CUresult launch(void);

/* Runs it in a forked child; its exit status. And what becomes of launches there. */
int child_of(void (*body)(void));
void as_the_driver_says(void);

/* -- the words -------------------------------------------------------------------------------- */

extern struct vgpu_hami_region *words; /* writable: after words_map, or launch_start */

void words_map(void);
void suspend(pid_t pid);
void resume(pid_t pid);

/* -- the functions that launch ---------------------------------------------------------------- */

struct launcher {
	const char *name, *plain; /* the latter as cuGetProcAddress knows it */
	void *linked;
	CUresult (*call)(void *function, CUstream where);
	bool per_thread;
	bool to_default; /* it has no stream to be given */
	int version;     /* of CUDA, for cuGetProcAddress; 0: the newest */
};

#define LAUNCHERS 12
extern const struct launcher launchers[LAUNCHERS];

/* How programs come by it: linked, by dlsym, by cuGetProcAddress. */
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
void attempt_waits(const struct attempt *attempt); /* it does still */
void attempt_ends(struct attempt *attempt, CUresult expected);

/* All of them, by all ways, wait after hold() and go on after let_go(). At most 64. */
void held(const struct launcher *list, size_t count, void (*hold)(void), void (*let_go)(void));
/* To be used so. */
void suspend_self(void);
void resume_self(void);
void block(void);
void unblock(void);
