/*
 * vgpu rm: removes slices that no process keeps alive.
 *
 * A slice of vgpu run is removed under its lock file's lock (state.h). Of another slice, vgpu rm
 * removes the region only. A process that opens the region at that moment finds that the file is
 * deleted, and is refused. A process that starts later makes a new region.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "commands.h"
#include "escape.h"
#include "force.h"
#include "given.h"
#include "slices.h"
#include "state.h"
#include "targets.h"

enum { ALL, FORCE, JSON };

static const struct cli_option options[] = {
	[ALL] = {"all", NULL, "all slices of this machine in which nothing lives", CLI_NOTHING,
		 'a'},
	[FORCE] = {"force", NULL,
		   "first end the slice's processes: by SIGTERM, after 5 seconds by SIGKILL; on a "
		   "terminal, ask before",
		   CLI_NOTHING, 'f'},
	[JSON] = {"json", NULL, "print one JSON document", CLI_NOTHING, 'j'},
	{NULL, NULL, NULL, CLI_NOTHING, 0},
};

static const struct cli_row exits[] = {
	{"0", "the slices are removed"},
	{"125",
	 "vgpu failed: a slice lives, was not found, or may not be removed by this user; the "
	 "other slices are removed"},
	{"2", "the command line is wrong"},
	{NULL, NULL},
};

static const struct cli_row examples[] = {
	{"vgpu rm --all", "removes all slices in which nothing lives"},
	{"vgpu rm --force web", "ends the programs of the slice web, and removes it"},
	{NULL, NULL},
};

static int remove_run(const struct slices_one *slice, struct fault *fault)
{
	struct state state;
	int error = state_open_at(slice->state_path, &state, fault);

	if (error)
		return error;
	error = state_slice_remove(&state, slice->name, fault);
	close(state.fd);
	return error;
}

/* Removes the region, unless a process lives in it (-EBUSY) or the file is no region. */
static int remove_region(const struct slices_one *slice, struct fault *fault)
{
	unsigned living = 0;
	int error = given_count_living(slice->region_path, &living, fault);

	if (error)
		return error; /* a file that is no region is not vgpu's to remove */
	if (living > 0)
		return fault_set(fault, -EBUSY,
				 "%u process%s in it: end %s first, or use vgpu rm --force", living,
				 living == 1 ? " is" : "es are", living == 1 ? "it" : "them");
	if (unlink(slice->region_path) < 0)
		return fault_set(fault, -errno,
				 "its region cannot be deleted (%s): run this as the owner of the "
				 "region's directory, or as root",
				 strerror(errno));
	return 0;
}

/* Asks the user, if standard input is a terminal. Otherwise --force is the confirmation. */
static bool is_confirmed(const char *name, unsigned count)
{
	char answer[16] = "", shown[1024];

	if (!isatty(STDIN_FILENO))
		return true;
	fprintf(stderr, "vgpu: end %u process%s of the slice %s, and remove it? [y/N] ", count,
		count == 1 ? "" : "es", escape(name, shown, sizeof(shown)));
	return fgets(answer, sizeof(answer), stdin) && (*answer == 'y' || *answer == 'Y');
}

/* Ends the processes that keep the slice alive, after a confirmation. */
static int end_living(struct target *target, struct fault *fault)
{
	unsigned count = force_count(target->slice);

	if (count == 0)
		return 0;
	if (!is_confirmed(target->name, count))
		return fault_set(fault, -ECANCELED, "the answer was no");
	return force_end(target->slice, &target->processes, fault);
}

/* Removes the slice with its owner's rights. -EBUSY: a process keeps it alive. */
static int remove_once(const struct slices_one *slice, struct fault *fault)
{
	int error = given_act_for(slice, fault);

	if (error)
		return error;
	error = slice->kind == SLICES_RUN ? remove_run(slice, fault) : remove_region(slice, fault);
	given_act_again();
	return error;
}

/* Ends the slice's processes, then removes the slice. A vgpu run that ends removes its slice
 * itself shortly after its command's end: until then, the slice is busy, and later there is
 * none. */
static int remove_forced(struct target *target, struct fault *fault)
{
	struct timespec pause = {0, 20 * NS_PER_MS};
	int error = end_living(target, fault);
	uint64_t deadline_ns;

	if (error)
		return error;
	deadline_ns = clock_now_ns() + FORCE_PATIENCE_S * NS_PER_S;
	while ((error = remove_once(target->slice, fault)) == -EBUSY &&
	       clock_now_ns() < deadline_ns)
		nanosleep(&pause, NULL);
	return error == -ENOENT ? 0 : error;
}

/* Says which program removes a slice that vgpu rm must not remove. */
static int refuse_container(const struct slices_one *slice, struct fault *fault)
{
	const char *const removes[] = {
		[SLICES_CONTAINER] = "vgpu cdi --remove",
		[SLICES_KUBERNETES] = "vgpu-device-plugin",
		[SLICES_CLAIM] = "vgpu-dra",
	};

	return fault_set(fault, -EPERM, "it is for containers: %s removes it",
			 removes[slice->kind]);
}

static void remove_one(const struct target_action *action, struct target *target)
{
	bool is_container =
		slices_is_of_container(target->slice) && target->slice->kind != SLICES_HAMI;
	struct fault fault = {""};
	int error = is_container    ? refuse_container(target->slice, &fault)
		    : action->force ? remove_forced(target, &fault)
				    : remove_once(target->slice, &fault);

	target->changed = !error;
	target->left_out = action->all && (is_container || (error == -EBUSY && !action->force));
	if (error)
		fault_set(&target->fault, error, "the slice %.200s is not removed: %.300s",
			  target->name, fault.text);
	else if (target->processes > 0)
		snprintf(target->said, sizeof(target->said), "%.300s: %u process%s ended; removed",
			 target->name, target->processes, target->processes == 1 ? "" : "es");
	else
		snprintf(target->said, sizeof(target->said), "%.300s: removed", target->name);
}

static int rm(const struct cli_line *line)
{
	struct target_action action = {
		.run = remove_one,
		.all = line->value[ALL] != NULL,
		.force = line->value[FORCE] != NULL,
	};

	return targets_each(line, action.all, line->value[JSON], &action);
}

const struct cli_command rm_command = {
	.name = "rm",
	.summary = "remove what is left of slices in which nothing lives",
	.arguments = "[NAME...]",
	.about = "Removes the slice NAME, if no vgpu run has it and no process is in it: its "
		 "policy and its region, or, of a container, its region. With --force, the slice's "
		 "processes are ended first.",
	.options = options,
	.environment = given_environment,
	.exits = exits,
	.examples = examples,
	.offer = CLI_SLICE,
	.run = rm,
};
