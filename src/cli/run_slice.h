/* The slice that vgpu run takes: a new one, or one that lives, found as vgpu ps finds it. */
#pragma once

#include "gpus.h"
#include "policy.h"
#include "request.h"
#include "state.h"

/* 0, or what to exit with after a line on stderr. wanted: the request as a policy, over all. */
int run_slice_take(const struct run_request *request, const struct policy *wanted,
		   const struct gpus *all, struct state *ret_state, struct state_slice *ret_slice);
