/*
 * vgpu cdi: makes, changes, lists and removes slices for containers.
 *
 * The slice is made or changed first (container.h), and its CDI specification is written last.
 * So a runtime that finds the CDI device also finds all of its mounts. A slice is removed in
 * the opposite order. The command can be repeated: the same command line changes nothing, and
 * another one changes the slice.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cdi.h"
#include "commands.h"
#include "given.h"
#include "gpus.h"
#include "library.h"
#include "request.h"
#include "slice.h"
#include "sys.h"

enum { GANGS = REQUEST_OPTION_COUNT, TURNS, VGPUD, UNLIMITED, OUTPUT, FLAGS, LIST, REMOVE, JSON };

static const struct cli_option options[] = {
	REQUEST_OPTIONS,
	[GANGS] = {"gangs", "DIR",
		   "a directory of the host that the slices of a gang have in common; their "
		   "containers must run as its owner",
		   CLI_NOTHING, 0},
	[TURNS] = {"turns", "DIR",
		   "a directory of the host: the slices that have it take turns on the GPUs that "
		   "they share; only for tenants that trust each other",
		   CLI_NOTHING, 0},
	[VGPUD] =
		{"vgpud", NULL,
		 "the slice takes turns by vgpud: the directory of its socket is mounted, and must "
		 "have nothing else",
		 CLI_NOTHING, 0},
	[UNLIMITED] = {"unlimited", NULL, "make a slice without limits", CLI_NOTHING, 0},
	[OUTPUT] = {"output", "FILE",
		    "write the specification to FILE instead of /etc/cdi/vgpu-NAME.json; - is "
		    "standard output",
		    CLI_NOTHING, 'o'},
	[FLAGS] = {"flags", NULL,
		   "write no specification, and print what does the same as flags of podman run, "
		   "docker run and nerdctl run",
		   CLI_NOTHING, 0},
	[LIST] = {"list", NULL, "list the slices for containers", CLI_NOTHING, 'l'},
	[REMOVE] = {"remove", NULL,
		    "remove the slices, with their specifications, unless a process is in one",
		    CLI_NOTHING, 0},
	[JSON] = {"json", NULL, "with --list: print one JSON document", CLI_NOTHING, 'j'},
	{NULL, NULL, NULL, CLI_NOTHING, 0},
};

static const struct cli_row environment[] = {
	{"VGPU_LIBRARY", "the path of libvgpu.so"},
	{"VGPU_SOCKET", "the socket of vgpud"},
	{"VGPU_CONTAINERS",
	 "a directory to keep all in, instead of /etc/vgpu, /run/vgpu-slices and /etc/cdi"},
	{NULL, NULL},
};

static const struct cli_row exits[] = {
	{"0", "the slices are as the command line says"},
	{"125", "vgpu failed: there is no NVIDIA driver, this user is not root, or a slice to be "
		"removed has processes; a line on standard error says why"},
	{"2", "the command line is wrong"},
	{NULL, NULL},
};

static const struct cli_row examples[] = {
	{"vgpu cdi alice --memory 8G --cores 30 --gpus 0",
	 "a slice, as the CDI device vgpu.local/slice=alice"},
	{"podman run --device nvidia.com/gpu=0 --device vgpu.local/slice=alice IMAGE",
	 "a container in the slice"},
	{"docker run --gpus device=0 $(vgpu cdi alice -m 8G -g 0 --flags) IMAGE",
	 "the same without CDI"},
	{"vgpu cdi --remove alice", "removes the slice"},
	{NULL, NULL},
};

/* -- the command line -------------------------------------------------------------------------- */

static int refuse_name(const char *name)
{
	return cli_fail(CLI_USAGE,
			"\"%s\" is no name for a slice: write 1 to 63 letters, digits, \".\", "
			"\"_\" and \"-\", with a letter or a digit first and last",
			name);
}

static int read_limits(struct run_request *request)
{
	bool limited;
	int status = request_check(request, &limited);

	if (status)
		return status;
	if (limited == request->unlimited)
		return cli_fail(CLI_USAGE,
				limited ? "--unlimited is for a slice without limits: leave it, or "
					  "--memory and --cores, out"
					: "a slice wants a limit: give --memory or --cores, or "
					  "--unlimited for one without limits");
	return 0;
}

static int read_request(const struct cli_line *line, struct run_request *ret_request)
{
	int status;

	*ret_request = (struct run_request){
		.name = line->argument[0],
		.unlimited = line->value[UNLIMITED] != NULL,
	};
	if (line->count != 1)
		return cli_fail(CLI_USAGE, "%s: vgpu cdi [OPTION...] NAME",
				line->count ? "one slice at a time" : "no name for the slice");
	if (!container_name_is_good(ret_request->name))
		return refuse_name(ret_request->name);
	if (line->value[FLAGS] && line->value[OUTPUT])
		return cli_fail(CLI_USAGE, "--flags writes no specification: leave --output out");
	status = request_read(line, ret_request);
	return status ? status : read_limits(ret_request);
}

/* -- making ------------------------------------------------------------------------------------ */

static int print_flags(const struct container_places *places, const struct container_slice *slice)
{
	char flag[CONTAINER_MOUNTS_MAX][CDI_FLAG_LEN];
	unsigned count = cdi_flags(places, slice, flag);

	for (unsigned i = 0; i < count; i++)
		cli_say("%s", flag[i]);
	return cli_written(0);
}

/* Writes the specification to the value of --output, or to the directory in which runtimes look
 * for specifications. output: "-" is standard output; NULL: --output was not given. */
static int put_spec(const struct container_places *places, const struct container_slice *slice,
		    const char *output, const char *text)
{
	struct fault fault = {""};
	char path[PATH_MAX];

	if (output && strcmp(output, "-") == 0) {
		fputs(text, stdout);
		return cli_written(0);
	}
	container_spec_path(places, slice->name, path);
	if (output)
		snprintf(path, sizeof(path), "%s%s", strchr(output, '/') ? "" : "./", output);
	if (container_spec_write(path, text, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	cli_say(CONTAINER_SPEC_KIND "=%s", slice->name);
	return cli_written(0);
}

static int make_slice(const struct cli_line *line, const struct container_places *places,
		      const struct container_slice *slice)
{
	struct fault fault = {""};
	char *text = NULL;
	int status;

	if (!line->value[FLAGS] && container_spec_text(places, slice, &text, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	if (container_make(places, slice, &fault))
		status = cli_fail(CLI_FAILED, "%s", fault.text);
	else if (line->value[FLAGS])
		status = print_flags(places, slice);
	else
		status = put_spec(places, slice, line->value[OUTPUT], text);
	free(text);
	return status;
}

/* Counts the entries of the directory other than vgpud's socket. */
static int count_other(void *arg, const char *name)
{
	unsigned *others = arg;

	*others += strcmp(name, SLICE_SOCKET_NAME) != 0 && strcmp(name, ".") != 0 &&
		   strcmp(name, "..") != 0;
	return 0;
}

/* Checks vgpud's socket for --vgpud. The socket's directory is mounted into containers, so it
 * must have no other file. The library in the container knows the socket's name, but not its
 * path here. */
static int check_socket(const char *path)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];
	unsigned others = 0;

	if (access(path, F_OK) < 0)
		return cli_fail(
			CLI_FAILED,
			"vgpud's socket %.300s is not there: start vgpud, or leave --vgpud out",
			path);
	if (!slash || strcmp(slash + 1, SLICE_SOCKET_NAME) != 0)
		return cli_fail(CLI_FAILED,
				"vgpud's socket %.300s is not called " SLICE_SOCKET_NAME
				": change it in vgpud.conf",
				path);
	snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
	if (sys_list_directory(dir, count_other, &others) != 0 || others > 0)
		return cli_fail(CLI_FAILED,
				"%.300s, the directory of vgpud's socket, has other files, and "
				"containers would have them: choose another for the socket in "
				"vgpud.conf",
				dir);
	return 0;
}

static int make(const struct cli_line *line, const struct container_places *places)
{
	char library[PATH_MAX];
	struct fault fault = {""};
	struct run_request request;
	struct policy policy;
	struct gpus all;
	int status = read_request(line, &request);

	if (!status)
		status = cdi_check_user();
	if (status)
		return status;
	status = line->value[VGPUD] ? check_socket(slice_socket_path()) : 0;
	if (status)
		return status;
	if (library_find(library, &fault) || library_check(library, &fault) ||
	    gpus_find(&all, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	status = request_policy(&request, &all, &policy);
	if (status)
		return status;
	policy.has_group = false; /* every user in the container may write the region */
	return make_slice(line, places,
			  &(struct container_slice){
				  .name = request.name,
				  .policy = &policy,
				  .library = library,
				  .turns = line->value[TURNS],
				  .gangs = line->value[GANGS],
				  .socket = line->value[VGPUD] ? slice_socket_path() : NULL,
			  });
}

/* -- removing ---------------------------------------------------------------------------------- */

/* Removes the slice and its specification. -EBUSY: a process is in the slice. */
static int remove_slice(const struct container_places *places, const char *name,
			struct fault *fault)
{
	char region[PATH_MAX], spec[PATH_MAX];
	unsigned living = 0;
	int error;

	container_region_path(places, name, region);
	/* An error is ignored: a tenant must not prevent the removal by a damaged region. */
	given_count_living(region, &living, NULL);
	if (living > 0)
		return fault_set(fault, -EBUSY, "%u process%s in it: stop its containers", living,
				 living == 1 ? " is" : "es are");
	container_spec_path(places, name, spec);
	if (unlink(spec) < 0 && errno != ENOENT)
		return fault_set(fault, -errno, "%.300s cannot be removed: %s", spec,
				 strerror(errno));
	error = container_remove(places, name, fault);
	if (error == -ENOENT && !fault->text[0])
		fault_set(fault, error, "there is no such slice: vgpu cdi --list lists the slices");
	return error;
}

static int remove_all(const struct cli_line *line, const struct container_places *places)
{
	int status = cdi_check_user();

	if (status)
		return status;
	if (line->count == 0)
		return cli_fail(CLI_USAGE, "no slice to remove: vgpu cdi --remove NAME...");
	for (int i = 0; i < line->count; i++)
		if (!container_name_is_good(line->argument[i]))
			return refuse_name(line->argument[i]);
	for (int i = 0; i < line->count; i++) {
		struct fault fault = {""};

		if (remove_slice(places, line->argument[i], &fault))
			status = cli_fail(CLI_FAILED, "the slice %s is not removed: %s",
					  line->argument[i], fault.text);
		else
			cli_say("%s: removed", line->argument[i]);
	}
	return cli_written(status);
}

/* -- the command ------------------------------------------------------------------------------- */

static int list(const struct cli_line *line, const struct container_places *places)
{
	struct cdi_slices slices;
	int status;

	if (line->count > 0)
		return cli_fail(CLI_USAGE, "--list lists all slices: leave the name out");
	status = cdi_find(places, &slices);
	if (status)
		return status;
	status = line->value[JSON] ? cdi_print_json(&slices) : cdi_print(&slices);
	cdi_free(&slices);
	return status;
}

/* Checks that no option is given which --list or --remove would ignore. */
static int check_options(const struct cli_line *line)
{
	const char *mode = line->value[LIST] ? "--list" : "--remove";

	if (!line->value[LIST] && line->value[JSON])
		return cli_fail(CLI_USAGE, "--json is for --list: leave --json out, or add --list");
	if (!line->value[LIST] && !line->value[REMOVE])
		return 0;
	for (int i = 0; options[i].name; i++)
		if (line->value[i] && i != LIST && i != JSON &&
		    !(i == REMOVE && !line->value[LIST]))
			return cli_fail(CLI_USAGE, "--%s and %s do not go together: leave one out",
					options[i].name, mode);
	return 0;
}

static int cdi(const struct cli_line *line)
{
	struct container_places places;
	struct fault fault = {""};
	int status = check_options(line);

	if (status)
		return status;
	if (container_find_places(&places, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	if (line->value[LIST])
		return list(line, &places);
	return line->value[REMOVE] ? remove_all(line, &places) : make(line, &places);
}

const struct cli_command cdi_command = {
	.name = "cdi",
	.summary = "make slices for containers, as CDI devices",
	.arguments = "[NAME...]",
	.about = "Makes the slice NAME for containers, or changes it: its policy, the directory "
		 "of its region, and a CDI specification with the device "
		 "vgpu.local/slice=NAME, which brings the library and the slice into a container. "
		 "The GPU itself comes by another device, such as nvidia.com/gpu=0.",
	.options = options,
	.environment = environment,
	.exits = exits,
	.examples = examples,
	.offer = CLI_SLICE,
	.run = cdi,
};
