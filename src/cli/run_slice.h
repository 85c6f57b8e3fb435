/* The slice that vgpu run takes: a new one, or one that lives, found as vgpu ps finds it. */
#pragma once

#include <stdbool.h>

#include "gpus.h"
#include "policy.h"
#include "state.h"

struct run_request {
	const char *memory; /* as written, or NULL; likewise the next four */
	const char *cores;
	const char *burst;
	const char *gpus;
	const char *name;
	const char *gang_word;   /* as written, or NULL */
	struct policy_gang gang; /* what it says */
	const char *group_word;  /* as written, or NULL */
	unsigned group;          /* which that is */
	bool oversubscribe;
	bool unlimited;
	bool makes; /* limits or --unlimited are given: where no such slice lives, it is made */
	bool allows_unheld;
	char **command;
};

/* 0, or what to exit with after a line on stderr. wanted: the request as a policy, over all. */
int run_slice_take(const struct run_request *request, const struct policy *wanted,
		   const struct gpus *all, struct state *ret_state, struct state_slice *ret_slice);
