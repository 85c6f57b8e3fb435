/*
 * vgpu run: a program in a slice.
 *
 * What is asked for becomes a policy over the machine's GPUs; the state directory has or makes the
 * slice; the command gets the library and where the slice lies, by its environment. Nothing is
 * printed when all goes well, and nothing is changed outside the state directory.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "amounts.h"
#include "child.h"
#include "commands.h"
#include "env.h"
#include "gpus.h"
#include "library.h"
#include "policy.h"
#include "size.h"
#include "state.h"

enum { MEMORY, CORES, GPUS, OVERSUBSCRIBE, NAME };

static const struct cli_option options[] = {
	[MEMORY] = {"memory", "SIZE[,SIZE...]",
		    "the most GPU memory that the slice may hold, for every GPU or one size for "
		    "each: bytes, or with k, m, g or t, such as 8G",
		    CLI_NOTHING},
	[CORES] = {"cores", "PCT[,PCT...]",
		   "the most of the GPUs' time that the slice may take, in percent, for every GPU "
		   "or one for each",
		   CLI_NUMBER},
	[GPUS] = {"gpus", "LIST",
		  "the slice's GPUs: indices, UUIDs or the start of one, with commas between them, "
		  "or all (the default)",
		  CLI_NOTHING},
	[OVERSUBSCRIBE] = {"oversubscribe", NULL,
			   "what does not fit on a GPU may lie in the host's memory, and SIZE may "
			   "be more than the GPU has",
			   CLI_NOTHING},
	[NAME] = {"name", "NAME", "the slice's name; if it lives already, COMMAND joins it",
		  CLI_SLICE},
	{NULL, NULL, NULL, CLI_NOTHING},
};

static const struct cli_row environment[] = {
	{"VGPU_STATE", "the directory where slices are kept"},
	{"VGPU_LIBRARY", "the path of libvgpu.so"},
	{NULL, NULL},
};

static const struct cli_row exits[] = {
	{"N", "COMMAND's own; 128 and a signal's number when that killed it"},
	{"127", "COMMAND was not found"},
	{"126", "COMMAND could not be run"},
	{"125", "vgpu itself failed, for example because there is no NVIDIA driver, or because the "
		"slice lives already and has other limits"},
	{"2", "the command line was wrong"},
	{NULL, NULL},
};

struct request {
	const char *memory; /* as written, or NULL; likewise the next three */
	const char *cores;
	const char *gpus;
	const char *name;
	bool oversubscribe;
	char **command;
};

/* -- the command line -------------------------------------------------------------------------- */

static int read_request(const struct cli_line *line, struct request *ret_request)
{
	*ret_request = (struct request){
		.memory = line->value[MEMORY],
		.cores = line->value[CORES],
		.gpus = line->value[GPUS],
		.name = line->value[NAME],
		.oversubscribe = line->value[OVERSUBSCRIBE] != NULL,
		.command = line->argument,
	};
	if (line->count == 0)
		return cli_fail(CLI_USAGE, "no command to run: vgpu run [OPTION...] COMMAND "
					   "[ARGUMENT...]");
	if (ret_request->name && !state_name_is_good(ret_request->name))
		return cli_fail(CLI_USAGE,
				"--name \"%s\" is no name for a slice: write 1 to 63 letters, "
				"digits, \".\", \"_\" and \"-\", no \".\" first",
				ret_request->name);
	return 0;
}

/* -- what the slice may have ------------------------------------------------------------------- */

/* The request as a policy, its devices in the order of --gpus. */
static int make_policy(const struct request *request, const struct gpus *all,
		       struct policy *ret_policy)
{
	uint64_t memory_bytes[VGPU_DEVICES_MAX] = {0}, cores_pct[VGPU_DEVICES_MAX] = {0};
	struct fault fault = {""};
	struct gpus gpus;
	int status;

	if (gpus_select(all, request->gpus ? request->gpus : "all", &gpus, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	if (gpus.count > VGPU_DEVICES_MAX)
		return cli_fail(CLI_FAILED,
				"a slice has at most %d GPUs, and these are %u: choose with --gpus",
				VGPU_DEVICES_MAX, gpus.count);
	memset(ret_policy, 0, sizeof(*ret_policy));
	ret_policy->oversubscribe = request->oversubscribe;
	ret_policy->device_count = gpus.count;
	status = request->memory ? amounts_memory(request->memory, &gpus, request->oversubscribe,
						  memory_bytes)
				 : 0;
	if (!status && request->cores)
		status = amounts_cores(request->cores, &gpus, cores_pct);
	for (unsigned i = 0; i < gpus.count; i++) {
		memcpy(ret_policy->device[i].uuid, gpus.gpu[i].uuid, VGPU_UUID_LEN);
		ret_policy->device[i].memory_bytes = memory_bytes[i];
		ret_policy->device[i].cores_pct = (unsigned)cores_pct[i];
	}
	return status;
}

/* -- the slice --------------------------------------------------------------------------------- */

/* What a slice has, for people: "GPU 0 with 8 GiB and 30 %, GPU 1 without a memory limit". */
static void describe(const struct policy *policy, const struct gpus *all, char *buf, size_t len)
{
	size_t at = 0;

	buf[0] = '\0';
	for (unsigned i = 0; i < all->count && at < len; i++) {
		int device = policy_find(policy, all->gpu[i].uuid);
		uint64_t bytes = device < 0 ? 0 : policy->device[device].memory_bytes;
		unsigned pct = device < 0 ? 0 : policy->device[device].cores_pct;
		char size[32], share[32] = "";

		if (device < 0)
			continue;
		if (bytes)
			size_format(bytes, size, sizeof(size));
		if (pct)
			snprintf(share, sizeof(share), " and %u %% of its time", pct);
		at += (size_t)snprintf(buf + at, len - at, "%sGPU %u with%s%s%s", at ? ", " : "", i,
				       bytes ? " " : "out a", bytes ? size : " memory limit",
				       share);
	}
}

/* Whether the slice has what was asked for, as far as anything was. */
static bool fits(const struct request *request, const struct policy *wanted,
		 const struct policy *has)
{
	if (request->gpus && wanted->device_count != has->device_count)
		return false;
	if (request->oversubscribe && !has->oversubscribe)
		return false;
	for (unsigned i = 0; i < wanted->device_count; i++) {
		int device = policy_find(has, wanted->device[i].uuid);

		if (device < 0) {
			if (request->gpus)
				return false;
			continue; /* limits alone say nothing about which GPUs */
		}
		if (request->memory &&
		    has->device[device].memory_bytes != wanted->device[i].memory_bytes)
			return false;
		if (request->cores && has->device[device].cores_pct != wanted->device[i].cores_pct)
			return false;
	}
	return true;
}

static int refuse_to_join(const struct state_slice *slice, const struct gpus *all)
{
	char has[1024];

	describe(&slice->policy, all, has, sizeof(has));
	return cli_fail(
		CLI_FAILED,
		"the slice %s lives already and has %s%s: to join it, leave --memory, "
		"--cores, --gpus and --oversubscribe out; for another slice, choose another name",
		slice->name, has, slice->policy.oversubscribe ? ", oversubscribed" : "");
}

/* A slice without a name is nobody else's: another pid namespace may have used ours up. */
static int take_unnamed(const struct state *state, const struct policy *wanted,
			struct state_slice *ret_slice, struct fault *fault)
{
	char name[STATE_NAME_MAX + 1];
	int error = -EEXIST;

	for (unsigned i = 0; error == -EEXIST; i++) {
		if (i == 0)
			snprintf(name, sizeof(name), "run-%d", (int)getpid());
		else
			snprintf(name, sizeof(name), "run-%d-%u", (int)getpid(), i + 1);
		error = state_slice_take(state, name, false, wanted, ret_slice, fault);
	}
	return error;
}

static int take_slice(const struct request *request, const struct state *state,
		      const struct policy *wanted, const struct gpus *all,
		      struct state_slice *ret_slice)
{
	struct fault fault = {""};
	int error = request->name ? state_slice_take(state, request->name, true, wanted, ret_slice,
						     &fault)
				  : take_unnamed(state, wanted, ret_slice, &fault);

	if (error)
		return cli_fail(CLI_FAILED, "%s", fault.text);
	if (!ret_slice->joined || fits(request, wanted, &ret_slice->policy))
		return 0;
	error = refuse_to_join(ret_slice, all);
	state_slice_leave(state, ret_slice);
	return error;
}

/* -- the command's environment ----------------------------------------------------------------- */

static int put(const char *name, const char *value)
{
	if (setenv(name, value, 1) == 0)
		return 0;
	return cli_fail(CLI_FAILED, "%s cannot be set: %s", name, strerror(errno));
}

static int put_preload(const char *library)
{
	const char *others = getenv("LD_PRELOAD");
	char *value;
	int status;

	if (!others || !*others)
		return put("LD_PRELOAD", library);
	if (asprintf(&value, "%s:%s", library, others) < 0)
		return cli_fail(CLI_FAILED, "LD_PRELOAD cannot be set: out of memory");
	status = put("LD_PRELOAD", value);
	free(value);
	return status;
}

/* The UUIDs of those GPUs that the slice has, in their order there. */
static int put_visible(const struct policy *order, const struct policy *has)
{
	char value[VGPU_DEVICES_MAX * VGPU_UUID_LEN] = "";
	size_t at = 0;

	for (unsigned i = 0; i < order->device_count; i++)
		if (policy_find(has, order->device[i].uuid) >= 0)
			at += (size_t)snprintf(value + at, sizeof(value) - at, "%s%s",
					       at ? "," : "", order->device[i].uuid);
	return put("CUDA_VISIBLE_DEVICES", value);
}

static int set_environment(const char *library, const struct request *request,
			   const struct policy *wanted, const struct gpus *all,
			   const struct state_slice *slice)
{
	bool chosen = request->gpus && strcmp(request->gpus, "all") != 0;
	int status = put_preload(library);

	if (!status)
		status = put("VGPU_POLICY", slice->policy_path);
	if (!status)
		status = put("CUDA_DEVICE_MEMORY_SHARED_CACHE", slice->region_path);
	if (!status && (chosen || slice->policy.device_count < all->count) &&
	    !getenv("CUDA_VISIBLE_DEVICES"))
		status = put_visible(wanted, &slice->policy);
	return status;
}

static int run_in(const struct state *state, const struct request *request,
		  const struct policy *wanted, const struct gpus *all, const char *library)
{
	struct state_slice slice;
	int status;

	state_sweep(state);
	status = take_slice(request, state, wanted, all, &slice);
	if (status)
		return status;
	status = set_environment(library, request, wanted, all, &slice);
	if (!status)
		status = child_run(request->command);
	state_slice_leave(state, &slice);
	return status;
}

static int run(const struct cli_line *line)
{
	struct fault fault = {""};
	char library[PATH_MAX];
	struct request request;
	struct policy wanted;
	struct state state;
	struct gpus all;
	int status = read_request(line, &request);

	if (status)
		return status;
	if (env_get("VGPU_POLICY"))
		return cli_fail(CLI_FAILED,
				"this is in a slice already (VGPU_POLICY is set), and slices do "
				"not nest: run the command as it is");
	if (gpus_find(&all, &fault) || library_find(library, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	status = make_policy(&request, &all, &wanted);
	if (status)
		return status;
	if (state_open(&state, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	return run_in(&state, &request, &wanted, &all, library);
}

const struct cli_command run_command = {
	.name = "run",
	.summary = "run a program in a slice of the GPU",
	.arguments = "[--] COMMAND [ARGUMENT...]",
	.about = "Runs COMMAND in a slice of the machine's GPUs.",
	.options = options,
	.environment = environment,
	.exits = exits,
	.offer = CLI_COMMAND,
	.leads = true,
	.run = run,
};
