/* vgpu rm: what is left of slices in which nothing lives. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "region.h"
#include "slices.h"
#include "state.h"

enum { ALL };

static const struct cli_option options[] = {
	[ALL] = {"all", NULL, "all slices of this machine in which nothing lives", CLI_NOTHING,
		 'a'},
	{NULL, NULL, NULL, CLI_NOTHING, 0},
};

static const struct cli_row exits[] = {
	{"0", "the slices are removed"},
	{"125", "vgpu failed: a slice lives, was not found, or may not be removed; others were "
		"removed"},
	{"2", "the command line is wrong"},
	{NULL, NULL},
};

static const struct cli_row examples[] = {
	{"vgpu rm --all", "the removal of all slices in which nothing lives"},
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

/* Who comes to it just then finds it deleted, and is refused; whoever comes later makes a new one.
 */
static int remove_region(const struct slices_one *slice, struct fault *fault)
{
	struct region region = REGION_CLOSED;
	int error = region_view(slice->region_path, &region, fault);
	unsigned living;

	if (error)
		return error; /* also of what is no region: not ours to remove */
	living = region_living(&region);
	region_close(&region);
	if (living > 0)
		return fault_set(fault, -EBUSY, "%u process%s in it", living,
				 living == 1 ? " is" : "es are");
	if (unlink(slice->region_path) < 0)
		return fault_set(fault, -errno, "%s", strerror(errno));
	return 0;
}

static int remove_slice(const struct slices_one *slice, bool even_busy)
{
	struct fault fault = {""};
	int error;

	if (slices_act_for(slice))
		return CLI_FAILED;
	error = slice->kind == SLICES_RUN ? remove_run(slice, &fault)
					  : remove_region(slice, &fault);
	slices_act_again();
	if (!error)
		cli_say("%s: removed", slice->name);
	else if (error == -EBUSY && even_busy)
		return 0;
	else
		return cli_fail(CLI_FAILED, "the slice %.200s is not removed: %.300s", slice->name,
				fault.text);
	return 0;
}

static int remove_all(void)
{
	struct fault fault = {""};
	struct slices slices;
	int worst = 0;

	if (slices_list(&slices, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	for (unsigned i = 0; i < slices.count; i++) {
		int status = remove_slice(&slices.one[i], true);

		worst = status ? status : worst;
	}
	slices_free(&slices);
	return worst;
}

static int rm(const struct cli_line *line)
{
	bool all = line->value[ALL] != NULL;
	int worst = 0;

	if (all == (line->count > 0))
		return cli_fail(CLI_USAGE, "%s: vgpu rm NAME..., or vgpu rm --all",
				all ? "names and --all at once" : "no slice to remove");
	for (int i = 0; i < line->count; i++) {
		const struct slices_one *slice;
		struct slices slices;
		int status = slices_meant(line->argument[i], &slices, &slice);

		if (!status)
			status = remove_slice(slice, false);
		slices_free(&slices);
		worst = status ? status : worst;
	}
	if (all)
		worst = remove_all();
	return cli_written(worst);
}

const struct cli_command rm_command = {
	.name = "rm",
	.summary = "remove what is left of slices in which nothing lives",
	.arguments = "[NAME...]",
	.about = "Removes the slice NAME, if no vgpu run has it and no process is in it: its "
		 "policy and its region, or, of a container, its region.",
	.options = options,
	.environment = slices_environment,
	.exits = exits,
	.examples = examples,
	.offer = CLI_SLICE,
	.run = rm,
};
