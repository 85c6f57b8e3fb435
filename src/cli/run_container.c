/*
 * vgpu run --container: a command line that starts a container, such as podman run, with a slice of
 * its own for the time that it runs.
 *
 * The slice is one for containers (container.h), without a specification: its mounts are put into
 * the command line, as flags after the word "run" or "create". When the command has ended, the
 * slice is removed, unless a process is in it still, as after podman run --detach.
 */
#include "run_container.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cdi.h"
#include "child.h"
#include "cli.h"
#include "given.h"

/* The place of the word after which flags go; 0: there is none. */
static int find_verb(char *const *command)
{
	for (int i = 1; command[0] && command[i]; i++)
		if (strcmp(command[i], "run") == 0 || strcmp(command[i], "create") == 0)
			return i;
	return 0;
}

int run_container_check(const struct run_request *request)
{
	if (request->group_word)
		return cli_fail(CLI_USAGE, "--group and --container do not go together: every "
					   "user in a container may be in its slice");
	if (request->name && !container_name_is_good(request->name))
		return cli_fail(
			CLI_USAGE,
			"--name \"%s\" is no name for a slice for containers: write a letter "
			"or a digit first and last",
			request->name);
	if (!request->makes)
		return cli_fail(CLI_USAGE, "--container makes a slice: give --memory or --cores, "
					   "or --unlimited");
	if (!find_verb(request->command))
		return cli_fail(CLI_USAGE,
				"--container is for command lines such as podman run "
				"[FLAG...] IMAGE: this one has no \"run\" or \"create\"");
	return cdi_check_user();
}

/* The command line with the flags in it. Its strings are the command's and the flags'. */
static char **insert(char *const *command, char flag[][CDI_FLAG_LEN], unsigned count)
{
	int verb = find_verb(command), length = verb;
	char **line;

	while (command[length])
		length++;
	line = calloc((size_t)length + count + 1, sizeof(*line));
	if (!line)
		return NULL;
	memcpy(line, command, ((size_t)verb + 1) * sizeof(*line));
	for (unsigned i = 0; i < count; i++)
		line[(unsigned)verb + 1 + i] = flag[i];
	memcpy(line + verb + 1 + count, command + verb + 1,
	       (size_t)(length - verb) * sizeof(*line));
	return line;
}

static void remove_slice(const struct container_places *places, const char *name)
{
	struct fault fault = {""};
	char region[PATH_MAX];
	unsigned living = 0;

	container_region_path(places, name, region);
	given_count_living(region, &living, NULL);
	if (living > 0)
		cli_fail(0,
			 "warning: %u process%s in the slice %s still, and it stays: vgpu cdi "
			 "--remove %s removes it later",
			 living, living == 1 ? " is" : "es are", name, name);
	else if (container_remove(places, name, &fault))
		cli_fail(0, "warning: the slice %s is not removed: %s", name, fault.text);
}

static int start(const struct container_places *places, const struct container_slice *slice,
		 const char *program, char *const *command)
{
	static char flag[CONTAINER_MOUNTS_MAX][CDI_FLAG_LEN];
	char **line = insert(command, flag, cdi_flags(places, slice, flag));
	int status = line ? child_run(program, line) : cli_fail(CLI_FAILED, "out of memory");

	free(line);
	remove_slice(places, slice->name);
	return status;
}

int run_container(const struct run_request *request, const struct policy *wanted,
		  const char *program, const char *library)
{
	char unnamed[CONTAINER_NAME_MAX + 1];
	struct policy policy = *wanted;
	struct container_slice slice = {
		.name = request->name ? request->name : unnamed,
		.policy = &policy,
		.library = library,
		.must_be_new = true,
	};
	struct container_places places;
	struct fault fault = {""};

	policy.has_group = false;
	snprintf(unnamed, sizeof(unnamed), "run-%d", (int)getpid());
	if (container_find_places(&places, &fault) || container_make(&places, &slice, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	return start(&places, &slice, program, request->command);
}
