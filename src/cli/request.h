/* The request of a command line for a slice, which vgpu run or vgpu cdi makes or joins. */
#pragma once

#include <stdbool.h>

#include "cli.h"
#include "gpus.h"
#include "policy.h"

/* The options that vgpu run and vgpu cdi have in common. In the tables of both, they come first,
 * and each command's own options begin at REQUEST_OPTION_COUNT. */
enum {
	REQUEST_MEMORY,
	REQUEST_CORES,
	REQUEST_BURST,
	REQUEST_GPUS,
	REQUEST_OVERSUBSCRIBE,
	REQUEST_GANG,
	REQUEST_OPTION_COUNT
};

/* Their rows, for a table of struct cli_option. */
#define REQUEST_OPTIONS                                                                            \
	[REQUEST_MEMORY] =                                                                         \
		{"memory", "SIZE[,SIZE...]",                                                       \
		 "the most GPU memory that the slice may hold, for every GPU or one size for "     \
		 "each: bytes, or with k, m, g or t, such as 8G, or a percentage of the GPU's, "   \
		 "such as 50%",                                                                    \
		 CLI_NOTHING, 'm'},                                                                \
	[REQUEST_CORES] =                                                                          \
		{"cores", "PCT[,PCT...]",                                                          \
		 "the most of the GPUs' time that the slice may take, in percent, or two figures " \
		 "such as 30-100: what is assured, and the most while no other slice wants it; "   \
		 "for every GPU or one for each",                                                  \
		 CLI_NUMBER, 'c'},                                                                 \
	[REQUEST_BURST] =                                                                          \
		{"burst", "TIME[,TIME...]",                                                        \
		 "how much unused GPU time the slice may save under its compute limit, and use "   \
		 "at once, from 0 to 1s, for every GPU or one for each; 20ms is the default",      \
		 CLI_NOTHING, 0},                                                                  \
	[REQUEST_GPUS] =                                                                           \
		{"gpus", "LIST",                                                                   \
		 "the slice's GPUs: indices, ranges such as 0-2, UUIDs or the start of one, with " \
		 "commas between them, or all (the default)",                                      \
		 CLI_GPUS, 'g'},                                                                   \
	[REQUEST_OVERSUBSCRIBE] =                                                                  \
		{"oversubscribe", NULL,                                                            \
		 "memory that does not fit on a GPU may lie in the host's memory, and SIZE "       \
		 "may be more than the GPU has",                                                   \
		 CLI_NOTHING, 0},                                                                  \
	[REQUEST_GANG] = {                                                                         \
		"gang", "WORD",                                                                    \
		"how a compute limit throttles: all GPUs and processes of the slice as one "       \
		"(yes), also together with other slices (the name of a gang), or each GPU by "     \
		"itself (no); without this option, those GPUs and processes as one whose kernels " \
		"can wait for each other, as in a job on several GPUs",                            \
		CLI_GANG, 0}

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

/* Fills the common options into the request, which is zeroed or has the command's own options.
 * Returns 0, or the exit status after a line on stderr: --gpus or --gang is malformed. */
int request_read(const struct cli_line *line, struct run_request *request);

/* Checks the form of --memory, --cores and --burst without the machine's GPUs. *ret_limits:
 * whether --memory or --cores has a limit. Returns 0, or the exit status after a line on
 * stderr. */
int request_check(const struct run_request *request, bool *ret_limits);

/* Turns the request into a policy. `all` has the machine's GPUs. The policy's devices are those
 * of --gpus, in that order, or all GPUs. Returns 0, or the exit status after a line on stderr;
 * the content of *ret_policy is undefined then. */
int request_policy(const struct run_request *request, const struct gpus *all,
		   struct policy *ret_policy);
