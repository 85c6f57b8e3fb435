/* The calls that hooks make before and after work is submitted to a device. */
#pragma once

#include <stdbool.h>

#include "cuda_abi.h"
#include "pace.h"

/* A launch between launch_begin and launch_end. */
struct launch {
	struct pace_pass pass;
	struct pace_work work;
	const void *loads; /* the function, if the driver may load its code; else NULL */
	CUstream loads_for;
	bool waits; /* not a launch, but a copy with the host, whose call returns when it is done */
};

/*
 * Waits until work may be submitted to the stream. A hook calls it where pace_is_open() is false.
 * per_thread: a NULL stream is the default stream of the thread. what: the key by which the cost is
 * learned. CUDA_SUCCESS: the driver is bound; the caller calls it, and then launch_end with its
 * answer. Anything else is the answer to the application.
 */
CUresult launch_begin(struct launch *launch, CUstream stream, bool per_thread,
		      const struct cost_of *what);

/* The thread is about to wait for the stream; or for some other work. of_all: that is all work that
 * the thread has submitted. */
void launch_will_wait_for(CUstream stream, bool per_thread);
void launch_will_wait(bool of_all);

/* The thread has asked the driver whether the stream, or other work, is done, and it is not. */
void launch_will_look_at(CUstream stream, bool per_thread);
void launch_will_look(bool of_all);

/* Whether the pacer wants to hear by pace_found_over that work which the thread asks about is done
 * (pace_has_waited). */
bool launch_has_waited(void);

/* The thread is about to make the stream wait for something that may not be work of the device. */
void launch_will_stall(CUstream stream, bool per_thread);

/* The thread is about to submit a copy that is not throttled. */
void launch_will_copy(CUstream stream, bool per_thread, uint64_t bytes);

/* After the driver's call, which returned `result`: charges the launch if it was submitted, and
 * returns `result`. */
CUresult launch_end(struct launch *launch, CUresult result);

/* A hash of pairs of words; never 0. */
uint64_t launch_hash(const uint64_t *words, unsigned pairs);

/* A kernel's name in struct cost_of, from its CUfunction or CUkernel. */
uint64_t launch_name(const void *function);

/* The context of the stream's work; NULL: there is none. */
CUcontext launch_context(CUstream stream);

/* The context's device, or -1. */
CUdevice launch_device(CUcontext context);

/* The key by which the cost of an executable graph's launches is learned. */
struct cost_of launch_of_graph(CUgraphExec graph);

/* Gives the pacer the slice's policy for gangs, which may have changed. */
void launch_set_gang(void);

void launch_forked(void); /* in a forked child */

/*
 * Defines a hook `name` and a function `name`_held. Where no launch is held back, the hook tests a
 * few words and jumps into the driver. Otherwise it jumps to name_held, which calls begin
 * (launch_begin, or a function with the same parameters), the driver, and launch_end. Both are tail
 * calls, for which the arguments stay in their registers; so name_held is a function of its own for
 * each hook.
 */
#define LAUNCH_HOOK(begin, name, stream, per_thread, what, parameters, arguments) \
	LAUNCH_HELD(begin, name, stream, per_thread, what, parameters, arguments) \
	LAUNCH_DOOR(name, cuda.name, parameters, arguments)

#define LAUNCH_HELD(begin, name, stream, per_thread, what, parameters, arguments) \
	LAUNCH_ASIDE static CUresult name##_held parameters                       \
	{                                                                         \
		const struct cost_of of = what;                                   \
		struct launch launch;                                             \
		CUresult result = begin(&launch, stream, per_thread, &of);        \
                                                                                  \
		if (result != CUDA_SUCCESS)                                       \
			return result;                                            \
		return launch_end(&launch, cuda.name arguments);                  \
	}

/* `open` is the function to which the hook jumps where no launch is held back. */
#define LAUNCH_DOOR(name, open, parameters, arguments)  \
	CUresult name parameters                        \
	{                                               \
		CUresult(*go) parameters = name##_held; \
                                                        \
		if (pace_is_open())                     \
			go = open;                      \
		return go arguments;                    \
	}
/* Not `cold`, for which compilers save size: with a compute quota every launch goes this way. */
#define LAUNCH_ASIDE __attribute__((noinline))
