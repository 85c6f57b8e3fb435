/* vgpu pause and vgpu resume: the status word of each of a slice's processes. */
#include <stdio.h>

#include "commands.h"
#include "region.h"
#include "slices.h"

static const struct cli_option options[] = {{NULL, NULL, NULL, CLI_NOTHING}};

static const struct cli_row exits[] = {
	{"0", "it is done"},
	{"125", "a slice was not found, or may not be written; others were done"},
	{"2", "the command line was wrong"},
	{NULL, NULL},
};

static int turn_slice(const struct slices_one *slice, bool paused)
{
	struct region region = REGION_CLOSED;
	struct fault fault = {""};
	unsigned count;

	if (region_view(slice->region_path, &region, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	if (!region.writable) {
		region_close(&region);
		return cli_fail(CLI_FAILED,
				"the region %.300s may not be written by this user: be its owner, "
				"or root",
				slice->region_path);
	}
	count = region_pause(&region, paused);
	region_close(&region);
	printf("%s: %u process%s %s\n", slice->name, count, count == 1 ? "" : "es",
	       paused ? "paused" : "resumed");
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
	.about = "Suspends all processes of each slice NAME, and those that come later: what they "
		 "would launch next waits until vgpu resume. They keep their memory, and what the "
		 "GPU has been given already is finished.",
	.options = options,
	.environment = slices_environment,
	.exits = exits,
	.offer = CLI_SLICE,
	.run = pause_slices,
};

const struct cli_command resume_command = {
	.name = "resume",
	.summary = "let a paused slice go on",
	.arguments = "NAME...",
	.about = "Lets all processes of each slice NAME go on, within 100 ms, after vgpu pause or "
		 "after a monitor has suspended them.",
	.options = options,
	.environment = slices_environment,
	.exits = exits,
	.offer = CLI_SLICE,
	.run = resume_slices,
};
