/* Makes the slice that vgpu run needs, or joins one that lives. */
#pragma once

#include "gpus.h"
#include "policy.h"
#include "request.h"
#include "state.h"

/* Joins this user's slice of the request's name, or makes a slice. wanted: the request as a
 * policy over the GPUs `all`. On success, the caller holds the slice until state_slice_leave.
 * Returns 0, or the exit status after a line on stderr. */
int run_slice_take(const struct run_request *request, const struct policy *wanted,
		   const struct gpus *all, struct state *ret_state, struct state_slice *ret_slice);
