/* The request of a command line for a slice, which vgpu run or vgpu cdi makes or joins. */
#pragma once

#include <stdbool.h>

#include "gpus.h"
#include "policy.h"

/* The strings are the options' values as written; NULL: the option was not given. They belong
 * to the command line. */
struct run_request {
	const char *memory;
	const char *cores;
	const char *burst;
	const char *gpus;
	const char *name;
	const char *gang_word;
	struct policy_gang gang; /* the meaning of gang_word */
	const char *group_word;
	unsigned group; /* the number of the group that group_word names */
	bool oversubscribe;
	bool unlimited;
	bool makes; /* the request has limits or --unlimited, so a slice may be made */
	bool allows_unheld;
	bool container; /* the command starts a container */
	char **command; /* the command and its arguments; ends with NULL */
};

/* Checks the form of --memory, --cores and --burst without the machine's GPUs. *ret_limits:
 * whether --memory or --cores has a limit. Returns 0, or the exit status after a line on
 * stderr. */
int request_check(const struct run_request *request, bool *ret_limits);

/* Turns the request into a policy. `all` has the machine's GPUs. The policy's devices are those
 * of --gpus, in that order, or all GPUs. Returns 0, or the exit status after a line on stderr;
 * the content of *ret_policy is undefined then. */
int request_policy(const struct run_request *request, const struct gpus *all,
		   struct policy *ret_policy);
