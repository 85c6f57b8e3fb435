/*
 * vgpu run: runs a program in a slice.
 *
 * First, program.h finds out whether the loader will preload the library into the command. A
 * command that would not be limited is refused, or started after a warning. Then the request
 * becomes a policy, run_slice.h makes or joins the slice, and the command gets the library and
 * the slice by environment variables. On success nothing is printed, and only files in the
 * state directory change.
 */
#include <ctype.h>
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
#include "program.h"
#include "run_container.h"
#include "run_slice.h"
#include "slice.h"
#include "state.h"
#include "visible.h"

enum { GROUP = REQUEST_OPTION_COUNT, NAME, UNLIMITED, ALLOW_UNHELD, CONTAINER };

static const struct cli_option options[] = {
	REQUEST_OPTIONS,
	[GROUP] = {"group", "GROUP",
		   "for root: a group, by name or number, whose processes may be in the slice as "
		   "well; without this option, only root's processes may",
		   CLI_NOTHING, 0},
	[NAME] = {"name", "NAME",
		  "the slice's name; if a slice of that name lives, COMMAND joins it, and limits "
		  "may "
		  "be left out",
		  CLI_SLICE, 'n'},
	[UNLIMITED] = {"unlimited", NULL,
		       "make a slice without limits, to watch what COMMAND takes", CLI_NOTHING, 0},
	[ALLOW_UNHELD] = {"allow-unheld", NULL,
			  "start COMMAND, after a warning, even if the slice would not limit it",
			  CLI_NOTHING, 0},
	[CONTAINER] = {"container", NULL,
		       "for root: COMMAND is podman run, docker run or nerdctl run; the container "
		       "is in the slice, and gets its GPU by a flag in COMMAND",
		       CLI_NOTHING, 0},
	{NULL, NULL, NULL, CLI_NOTHING, 0},
};

static const struct cli_row environment[] = {
	{"VGPU_STATE", "the directory where slices are kept"},
	{"VGPU_LIBRARY", "the path of libvgpu.so"},
	{"VGPU_GANGS", "the directory where gangs of several slices are kept"},
	{"VGPU_TURNS", "the directory where slices that use the same GPU take turns"},
	{"VGPU_SOCKET", "the socket at which vgpud is asked for the files of turns"},
	{NULL, NULL},
};

static const struct cli_row exits[] = {
	{"N", "COMMAND's own status; 128 plus the signal's number if a signal killed COMMAND"},
	{"127", "COMMAND, or the interpreter of the script that it is, was not found"},
	{"126", "COMMAND could not be run"},
	{"125", "vgpu itself failed, for example because there is no NVIDIA driver, because the "
		"slice lives already and has other limits, or because it would not limit COMMAND"},
	{"2", "the command line is wrong"},
	{NULL, NULL},
};

static const struct cli_row examples[] = {
	{"vgpu run --memory 8G python3 train.py", "a program that may hold 8 GiB of every GPU"},
	{"vgpu run -m 4G -c 30 -g 0 -n web ./serve",
	 "a slice with the name web: 4 GiB of GPU 0, and 30 % of its time"},
	{"vgpu run --name web ./worker", "another program in the slice web"},
	{"vgpu run -m 8G --container podman run --rm --device nvidia.com/gpu=0 IMAGE",
	 "a container in a slice of its own"},
	{NULL, NULL},
};

/* -- the command line -------------------------------------------------------------------------- */

/* Checks the limits of the request. A new slice must have a limit or --unlimited: otherwise a
 * forgotten option would start an unlimited program. */
static int read_limits(struct run_request *request)
{
	bool limited, has_amounts = request->memory || request->cores;
	int status = request_check(request, &limited);

	if (status)
		return status;
	if (request->unlimited && limited)
		return cli_fail(CLI_USAGE,
				"--unlimited is for a slice without limits: leave it, or "
				"--memory and --cores, out");
	if (has_amounts && !limited && !request->unlimited)
		return cli_fail(
			CLI_USAGE,
			"--memory and --cores limit nothing here: give an amount other than "
			"none, or --unlimited in their place for a slice without limits");
	if (!request->name && !limited && !request->unlimited)
		return cli_fail(
			CLI_USAGE,
			"a new slice wants a limit: give --memory or --cores, or "
			"--unlimited for one without limits; --name alone joins a slice that "
			"lives");
	request->makes = limited || request->unlimited;
	return 0;
}

static int read_request(const struct cli_line *line, struct run_request *ret_request)
{
	int status;

	*ret_request = (struct run_request){
		.name = line->value[NAME],
		.group_word = line->value[GROUP],
		.unlimited = line->value[UNLIMITED] != NULL,
		.allows_unheld = line->value[ALLOW_UNHELD] != NULL,
		.container = line->value[CONTAINER] != NULL,
		.command = line->argument,
	};
	if (ret_request->name && !state_name_is_good(ret_request->name))
		return cli_fail(CLI_USAGE,
				"--name \"%s\" is no name for a slice: write 1 to 63 letters, "
				"digits, \".\", \"_\" and \"-\", no \".\" or \"-\" first, and not "
				"\"" STATE_GANGS "\" or \"" STATE_TURNS "\"",
				ret_request->name);
	if (line->count == 0 || !*line->argument[0])
		return cli_fail(CLI_USAGE, "no command to run: vgpu run [OPTION...] COMMAND "
					   "[ARGUMENT...]");
	if (ret_request->group_word && !ret_request->container && geteuid() != 0)
		return cli_fail(CLI_USAGE,
				"--group is for slices of root: another user's are in a directory "
				"that only this user enters; leave --group out");
	status = request_read(line, ret_request);
	if (!status && ret_request->group_word)
		status = amounts_group(ret_request->group_word, &ret_request->group);
	return status ? status : read_limits(ret_request);
}

/* -- whether the command would be limited ------------------------------------------------------ */

/*
 * Prints the reason why the program is not started, and what to do. error: the negative errno
 * with which exec would fail; 0: exec would succeed, but the program would not be limited.
 * Returns the exit status.
 */
static int refuse_program(const struct program *program, int error)
{
	bool cannot_tell = program->standing == PROGRAM_UNKNOWN;
	char cure[sizeof(program->cure.text)];
	int status = error == -ENOENT ? CLI_NOT_FOUND : error ? CLI_NOT_EXECUTABLE : CLI_FAILED;

	snprintf(cure, sizeof(cure), "%s", program->cure.text);
	cure[0] = (char)tolower((unsigned char)cure[0]);
	if (program->error)
		return cli_fail(status, "%s cannot be run: %s: %s", program->path,
				program->what.text, cure);
	if (error)
		return cli_fail(status, "%s: %s", program->what.text, cure);
	return cli_fail(status, "%s%s %s: %s: %s; or add --allow-unheld to start it nevertheless",
			cannot_tell ? "whether " : "", program->path,
			cannot_tell ? "would be limited by the slice is not known"
				    : "would not be limited by the slice",
			program->what.text, cure);
}

/* Finds the program, and checks that the slice would limit it. ret_path: the path of the file
 * to start. Returns 0, or the exit status after a line on stderr. */
static int check_program(const struct run_request *request, char ret_path[PATH_MAX])
{
	struct program program;
	int error = program_find(request->command, &program), status = 0;
	bool is_held = !error &&
		       (program.standing == PROGRAM_HELD || program.standing == PROGRAM_HELD_HERE ||
			request->container); /* the container is in the slice */
	bool insists = request->allows_unheld && (!error || error == -ENOEXEC);

	memcpy(ret_path, program.command, PATH_MAX);
	if (error && !insists)
		status = refuse_program(&program, error);
	else if (program.error) /* exec would fail, also with --allow-unheld */
		status = refuse_program(&program, -program.error);
	else if (!is_held && !insists)
		status = refuse_program(&program, 0);
	else if (!is_held)
		cli_fail(0, "warning: %s %s limited by the slice: %s", program.path,
			 program.standing == PROGRAM_UNKNOWN ? "may not be" : "is not",
			 program.what.text);
	program_close(&program);
	return status;
}

/* -- the command's environment ----------------------------------------------------------------- */

/* Sets the variable for the command. */
static int put(const char *name, const char *value)
{
	if (setenv(name, value, 1) == 0)
		return 0;
	return cli_fail(CLI_FAILED, "%s cannot be set: %s", name, strerror(errno));
}

/* Puts the library before the other entries of LD_PRELOAD. */
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

/* Sets CUDA_VISIBLE_DEVICES to the UUIDs of the slice's GPUs, in the order of the policy
 * `order`. */
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

/*
 * Warns if the caller's CUDA_VISIBLE_DEVICES hides all GPUs of the slice. The command keeps
 * that variable, and numbers in it count the slice's GPUs. A number that a batch system or
 * nvidia-smi gave may name none of them. The command is started nevertheless: it is limited,
 * and an empty value is a usual way to keep a program off the GPUs.
 */
static void warn_if_hidden(const struct policy *has)
{
	const struct visible_order unknown = {.gpu_count = 0};
	const char *asked = getenv("CUDA_VISIBLE_DEVICES");
	char list[VISIBLE_LIST_LEN];

	if (asked && visible_compose(has, asked, &unknown, list) && !list[0])
		cli_fail(
			0,
			"warning: CUDA_VISIBLE_DEVICES=\"%s\" hides all GPUs of the slice from the "
			"command: numbers in it count the slice's GPUs, of which there %s %u, from "
			"0; unset it to show them all",
			asked, has->device_count == 1 ? "is" : "are", has->device_count);
}

/* Sets VGPU_GANGS to the directory of gangs. Slices without a named gang get the variable, too,
 * because vgpu set can name a gang later. */
static int put_gangs(const struct state *state, const struct policy *has)
{
	struct fault fault = {""};
	char path[PATH_MAX];

	if (env_get("VGPU_GANGS"))
		return 0;
	if (has->gang.rule == POLICY_GANG_NAMED && state_make_gangs(state->path, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	snprintf(path, sizeof(path), "%s/" STATE_GANGS, state->path);
	return put("VGPU_GANGS", path);
}

/* Sets VGPU_TURNS to the machine's directory, where slices of several users take turns, or, if
 * this user may not write it, to one in the state directory. Without a directory, the slice
 * keeps its limits but takes no turns. */
static int put_turns(const struct state *state)
{
	struct fault fault = {""};
	char path[PATH_MAX];

	if (env_get("VGPU_TURNS"))
		return 0;
	if (!env_get("VGPU_STATE") && access(SLICE_TURNS_DIR, W_OK | X_OK) == 0)
		return put("VGPU_TURNS", SLICE_TURNS_DIR);
	if (state_make_turns(state->path, &fault)) {
		cli_fail(0, "warning: %s: the slice takes no turns with others", fault.text);
		return 0;
	}
	snprintf(path, sizeof(path), "%s/" STATE_TURNS, state->path);
	return put("VGPU_TURNS", path);
}

/* Gives the command its library, its policy, its region and, if the slice does not have all
 * GPUs, its GPUs. */
static int set_environment(const char *library, const struct run_request *request,
			   const struct policy *wanted, const struct gpus *all,
			   const struct state_slice *slice)
{
	bool chosen = request->gpus && strcmp(request->gpus, "all") != 0;
	int status = put_preload(library);

	warn_if_hidden(&slice->policy);
	if (!status)
		status = put("VGPU_POLICY", slice->policy_path);
	if (!status)
		status = put("CUDA_DEVICE_MEMORY_SHARED_CACHE", slice->region_path);
	if (!status && (chosen || slice->policy.device_count < all->count) &&
	    !getenv("CUDA_VISIBLE_DEVICES"))
		status = put_visible(wanted, &slice->policy);
	return status;
}

static int run_in_slice(const struct run_request *request, const char *program, const char *library,
			const struct gpus *all)
{
	struct state_slice slice;
	struct policy wanted;
	struct state state;
	int status = request_policy(request, all, &wanted);

	if (!status && request->container)
		return run_container(request, &wanted, program, library);
	if (!status)
		status = run_slice_take(request, &wanted, all, &state, &slice);
	if (status)
		return status;
	status = set_environment(library, request, &wanted, all, &slice);
	if (!status)
		status = put_gangs(&state, &slice.policy);
	if (!status)
		status = put_turns(&state);
	if (!status)
		status = child_run(program, request->command);
	state_slice_leave(&state, &slice);
	return status;
}

static int run(const struct cli_line *line)
{
	char program[PATH_MAX], library[PATH_MAX];
	struct fault fault = {""};
	struct run_request request;
	struct gpus all;
	int status = read_request(line, &request);

	if (status)
		return status;
	if (env_get("VGPU_POLICY") || library_is_preloaded())
		return cli_fail(CLI_FAILED,
				"this is in a slice already (%s), and slices do not nest: run the "
				"command as it is",
				env_get("VGPU_POLICY") ? "VGPU_POLICY is set"
						       : "LD_PRELOAD has vgpu's library");
	if (request.container)
		status = run_container_check(&request);
	if (!status)
		status = check_program(&request, program);
	if (status)
		return status;
	if (library_find(library, &fault) || library_check(library, &fault) ||
	    gpus_find(&all, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	return run_in_slice(&request, program, library, &all);
}

const struct cli_command run_command = {
	.name = "run",
	.summary = "run a program in a slice of the GPU",
	.arguments = "[--] COMMAND [ARGUMENT...]",
	.about = "Runs COMMAND in a slice of the machine's GPUs.",
	.options = options,
	.environment = environment,
	.exits = exits,
	.examples = examples,
	.offer = CLI_COMMAND,
	.leads = true,
	.run = run,
};
