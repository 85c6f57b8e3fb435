/* vgpu pause and vgpu resume: a state of the slice, which its region keeps (region_pause). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "policy.h"
#include "region.h"
#include "slices.h"

static const struct cli_option options[] = {{NULL, NULL, NULL, CLI_NOTHING, 0}};

static const struct cli_row exits[] = {
	{"0", "the slices are paused, or resumed"},
	{"125", "vgpu failed: a slice was not found, several are meant, or it may not be written; "
		"others were done"},
	{"2", "the command line is wrong"},
	{NULL, NULL},
};

static const struct cli_row resume_examples[] = {
	{"vgpu resume train", "the slice train goes on"},
	{NULL, NULL},
};

static const struct cli_row pause_examples[] = {
	{"vgpu pause train", "the slice train launches nothing more until vgpu resume train"},
	{NULL, NULL},
};

/* A slice of vgpu run whose region was lost: its next process would make the region from the
 * policy, and so does this. */
static int make_region(const struct slices_one *slice, struct region *ret_region,
		       struct fault *fault)
{
	struct region_setup setup;
	struct policy policy;
	int error = policy_read(slice->policy_path, &policy, fault);

	if (error)
		return error;
	memset(&setup, 0, sizeof(setup));
	setup.device_count = policy.device_count;
	setup.priority = 1;
	for (unsigned i = 0; i < policy.device_count; i++) {
		memcpy(setup.device[i].uuid, policy.device[i].uuid, VGPU_UUID_LEN);
		setup.device[i].memory_bytes = policy.device[i].memory_bytes;
		setup.device[i].cores_pct = policy.device[i].cores_pct;
	}
	return region_open(slice->region_path, &setup, ret_region, fault);
}

static int open_region(const struct slices_one *slice, struct region *ret_region,
		       struct fault *fault)
{
	int error = region_view(slice->region_path, ret_region, fault);

	if (error != -ENOENT || !slice->policy_path)
		return error;
	if (slices_act_for(slice))
		return -EPERM;
	fault->text[0] = '\0';
	error = make_region(slice, ret_region, fault);
	slices_act_again();
	return error;
}

/* A monitor may have suspended processes of a slice that is not paused, or resumed some of a slice
 * that is. */
static void report(const struct slices_one *slice, bool paused, bool changed, unsigned processes)
{
	if (processes > 0)
		cli_say("%s: %u process%s %s", slice->name, processes, processes == 1 ? "" : "es",
			paused ? "paused" : "resumed");
	else if (changed)
		cli_say("%s: %s; no process uses the GPU", slice->name,
			paused ? "paused" : "resumed");
	else
		cli_say("%s: is %s", slice->name, paused ? "paused already" : "not paused");
}

static int turn_slice(const struct slices_one *slice, bool paused)
{
	struct region region = REGION_CLOSED;
	struct fault fault = {""};
	unsigned count;
	bool changed;

	if (open_region(slice, &region, &fault))
		return cli_fail(CLI_FAILED, "%s",
				fault.text[0] ? fault.text : "the slice has just ended");
	if (!region.writable) {
		region_close(&region);
		return cli_fail(CLI_FAILED,
				"the region %.300s may not be written by this user: be its owner, "
				"or root",
				slice->region_path);
	}
	changed = region_pause(&region, paused, &count);
	region_close(&region);
	report(slice, paused, changed, count);
	return 0;
}

static int turn(const struct cli_line *line, bool paused)
{
	int worst = 0;

	if (line->count == 0)
		return cli_fail(CLI_USAGE, "no slice to %s: vgpu %s NAME...", line->command->name,
				line->command->name);
	for (int i = 0; i < line->count; i++) {
		const struct slices_one *slice;
		struct slices slices;
		int status = slices_meant(line->argument[i], &slices, &slice);

		if (!status)
			status = turn_slice(slice, paused);
		slices_free(&slices);
		worst = status ? status : worst;
	}
	return cli_written(worst);
}

static int pause_slices(const struct cli_line *line)
{
	return turn(line, true);
}

static int resume_slices(const struct cli_line *line)
{
	return turn(line, false);
}

const struct cli_command pause_command = {
	.name = "pause",
	.summary = "stop a slice's work on the GPU for now",
	.arguments = "NAME...",
	.about = "Pauses each slice NAME: what its processes, and those that come later, would "
		 "launch next waits until vgpu resume. They keep their memory, and the GPU "
		 "finishes the work that it has been given already.",
	.options = options,
	.environment = slices_environment,
	.exits = exits,
	.examples = pause_examples,
	.offer = CLI_SLICE,
	.run = pause_slices,
};

const struct cli_command resume_command = {
	.name = "resume",
	.summary = "let a paused slice go on",
	.arguments = "NAME...",
	.about = "Ends the pause of each slice NAME, whether vgpu pause or a monitor paused its "
		 "processes: they go on within 100 ms.",
	.options = options,
	.environment = slices_environment,
	.exits = exits,
	.examples = resume_examples,
	.offer = CLI_SLICE,
	.run = resume_slices,
};
