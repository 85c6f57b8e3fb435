/* Before the device is given work, and after. */
#pragma once

#include <stdbool.h>

#include "cuda_abi.h"
#include "pace.h"

/* A launch on its way. */
struct launch {
	struct pace_pass pass;
	struct pace_work work;
	bool waits; /* it is none, and returns when it is done */
};

/*
 * For whom pace_is_open() does not let through: waits until work may go to the stream. per_thread:
 * what its NULL means. what: what is launched, as costs are learned by it. CUDA_SUCCESS: call the
 * driver, to which we are bound then, and launch_end with its answer; anything else is what the
 * application is told.
 */
CUresult launch_begin(struct launch *launch, CUstream stream, bool per_thread,
		      const struct cost_of *what);

/* The thread is about to wait: for the stream; for something, which of_all says is all that it has
 * submitted. */
void launch_will_wait_for(CUstream stream, bool per_thread);
void launch_will_wait(bool of_all);

/* The same where it has asked whether that is over, which it is not. */
void launch_will_look_at(CUstream stream, bool per_thread);
void launch_will_look(bool of_all);

/* Whether pace_found_over serves for a look at something that is over (pace_has_waited). */
bool launch_has_waited(void);

/* The thread is about to have the stream wait for what may be no work of the device. */
void launch_will_stall(CUstream stream, bool per_thread);

/* The thread is about to submit a copy that is not held. */
void launch_will_copy(CUstream stream, bool per_thread, uint64_t bytes);

/* Returns the driver's result. */
CUresult launch_end(struct launch *launch, CUresult result);

/* A hash of some pairs of words that tell one thing from another; never 0. */
uint64_t launch_hash(const uint64_t *words, unsigned pairs);

/* A kernel's name in struct cost_of, from its CUfunction or CUkernel. */
uint64_t launch_name(const void *function);

/* The context's device, or -1. */
CUdevice launch_device(CUcontext context);

/* What an executable graph's launches cost. */
struct cost_of launch_of_graph(CUgraphExec graph);

/* The gate goes by what the slice's policy says of gangs now. */
void launch_set_gang(void);

void launch_forget(void); /* in a forked child */

/*
 * A hook, and its way round: begin is launch_begin, or takes what it takes. Where nothing is in the
 * way, the straight way is a test of some words and a jump into the driver: arguments stay where
 * they are, which is why the way round is a function of its own each time.
 */
#define LAUNCH_HOOK(begin, name, stream, per_thread, what, parameters, arguments) \
	LAUNCH_ASIDE static CUresult name##_held parameters                       \
	{                                                                         \
		const struct cost_of of = what;                                   \
		struct launch launch;                                             \
		CUresult result = begin(&launch, stream, per_thread, &of);        \
                                                                                  \
		if (result != CUDA_SUCCESS)                                       \
			return result;                                            \
		return launch_end(&launch, cuda.name arguments);                  \
	}                                                                         \
                                                                                  \
	CUresult name parameters                                                  \
	{                                                                         \
		CUresult(*go) parameters = name##_held;                           \
                                                                                  \
		if (pace_is_open())                                               \
			go = cuda.name;                                           \
		return go arguments;                                              \
	}
/* Not cold, which is compiled for size: under a compute quota every launch goes this way. */
#define LAUNCH_ASIDE __attribute__((noinline))
