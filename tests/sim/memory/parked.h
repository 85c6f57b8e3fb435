/* Parks a thread's call in the driver (VGPU_SIM_PARK) while the test continues. */
#pragma once

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "cuda_api.h"

static const char *parked_at;

/* Parks the calls that the rule names. Call it before CUDA starts. */
static inline void park(const char *rule)
{
	char text[512];

	parked_at = strdup(scene_path("parked"));
	snprintf(text, sizeof(text), "%s=%s", rule, parked_at);
	env_set("VGPU_SIM_PARK", text);
}

static inline void wait_parked(void)
{
	uint64_t began = now_ms();

	while (access(parked_at, F_OK) != 0) {
		CHECK(now_ms() - began < WAIT_S * 1000);
		sleep_ms(1);
	}
}

static inline void go_on(void)
{
	CHECK(unlink(parked_at) == 0);
}

struct call {
	pthread_t thread;
	CUcontext context;
	CUresult (*make)(void);
	CUresult result;
};

static inline void *call_thread(void *arg)
{
	struct call *call = arg;

	CHECK_OK(cuCtxSetCurrent(call->context));
	call->result = call->make();
	return NULL;
}

/* Makes the call in a thread, in the current context, and returns when it is parked. */
static inline void begin_call(struct call *call, CUresult (*make)(void))
{
	call->make = make;
	CHECK_OK(cuCtxGetCurrent(&call->context));
	CHECK(pthread_create(&call->thread, NULL, call_thread, call) == 0);
	wait_parked();
}

static inline CUresult end_call(struct call *call)
{
	go_on();
	CHECK(pthread_join(call->thread, NULL) == 0);
	return call->result;
}
