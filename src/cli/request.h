/* What a command line asks of a slice that is to be made or joined. */
#pragma once

#include <stdbool.h>

#include "gpus.h"
#include "policy.h"

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
	bool container; /* the command starts a container */
	char **command;
};

/* The form of the amounts, and whether any of them is a limit; and the request as a policy over all
 * GPUs of the machine, its devices in the order of --gpus. 0, or what to exit with after a line on
 * stderr. */
int request_check(const struct run_request *request, bool *ret_limits);
int request_policy(const struct run_request *request, const struct gpus *all,
		   struct policy *ret_policy);
