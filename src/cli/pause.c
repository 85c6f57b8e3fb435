/* vgpu pause and vgpu resume: set and clear the pause of a slice, which is a state of its
 * region (region_pause). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "given.h"
#include "guard.h"
#include "held.h"
#include "policy.h"
#include "region.h"
#include "slices.h"
#include "targets.h"

enum { ALL, JSON };

static const struct cli_option options[] = {
	[ALL] = {"all", NULL, "all slices of this machine", CLI_NOTHING, 'a'},
	[JSON] = {"json", NULL, "print one JSON document", CLI_NOTHING, 'j'},
	{NULL, NULL, NULL, CLI_NOTHING, 0},
};

static const struct cli_row exits[] = {
	{"0", "the slices are paused, or resumed"},
	{"125", "vgpu failed: a slice was not found, a name means several, or this user may not "
		"write a region; the other slices are paused, or resumed"},
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

/* Makes the region of a slice of vgpu run that has lost its region, from the policy, as the
 * slice's next process would. */
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
	setup.has_group = policy.has_group;
	setup.group = policy.group;
	for (unsigned i = 0; i < policy.device_count; i++) {
		memcpy(setup.device[i].uuid, policy.device[i].uuid, VGPU_UUID_LEN);
		setup.device[i].memory_bytes = policy.device[i].memory_bytes;
		setup.device[i].cores_pct = policy.device[i].cores_pct;
		setup.device[i].cores_most_pct = policy.device[i].cores_most_pct;
		setup.device[i].burst_ns = policy.device[i].burst_ns;
	}
	return region_open(slice->region_path, &setup, ret_region, fault);
}

/* Opens the slice's region. Makes it if there is none and the slice has a policy. */
static int open_region(const struct slices_one *slice, struct region *ret_region,
		       struct fault *fault)
{
	int error = region_view(slice->region_path, ret_region, fault);

	if (error != -ENOENT || !slice->policy_path)
		return error;
	fault->text[0] = '\0';
	return make_region(slice, ret_region, fault);
}

/*
 * Writes the report for people. changed: whether the slice's state was another one before. A
 * monitor may suspend processes of a slice that is not paused, or resume processes of a paused
 * one. So processes may change although the slice's state does not.
 */
static void report(struct target *target, bool paused, bool changed)
{
	size_t len = sizeof(target->said);

	target->changed = changed || target->processes > 0;
	if (target->processes > 0)
		snprintf(target->said, len, "%.300s: %u process%s %s", target->name,
			 target->processes, target->processes == 1 ? "" : "es",
			 paused ? "paused" : "resumed");
	else if (changed)
		snprintf(target->said, len, "%.300s: %s; no process uses the GPU", target->name,
			 paused ? "paused" : "resumed");
	else
		snprintf(target->said, len, "%.300s: is %s", target->name,
			 paused ? "paused already" : "not paused");
}

/* Pauses or resumes the slice. The caller has called guard_begin (guard.h). */
static void turn_guarded(const struct target_action *action, struct target *target, bool paused)
{
	struct region region = REGION_CLOSED;

	if (open_region(target->slice, &region, &target->fault)) {
		if (!target->fault.text[0])
			fault_set(&target->fault, 0, "the slice %.200s has just ended",
				  target->name);
		return;
	}
	if (paused && held_by_none(target->slice, region_living(&region))) {
		fault_set(&target->fault, 0,
			  "nothing lives in the slice %.200s, and the next vgpu run removes it: "
			  "there is nothing to pause",
			  target->name);
		target->left_out = action->all;
	} else if (region.writable)
		report(target, paused, region_pause(&region, paused, &target->processes));
	else
		fault_set(&target->fault, 0,
			  "this user may not write the region %.300s: run this as its owner, or as "
			  "root",
			  target->slice->region_path);
	region_close(&region);
}

/* Pauses or resumes the slice with its owner's rights, while others may truncate its region. */
static void turn(const struct target_action *action, struct target *target, bool paused)
{
	if (given_act_for(target->slice, &target->fault))
		return;
	guard_begin();
	turn_guarded(action, target, paused);
	given_act_again();
	if (!guard_end())
		return;
	target->changed = target->left_out = false;
	fault_set(&target->fault, 0, "the region %.300s was truncated just now: try again",
		  target->slice->region_path);
}

static void pause_one(const struct target_action *action, struct target *target)
{
	turn(action, target, true);
}

static void resume_one(const struct target_action *action, struct target *target)
{
	turn(action, target, false);
}

static int pause_slices(const struct cli_line *line)
{
	struct target_action action = {.run = pause_one, .all = line->value[ALL] != NULL};

	return targets_each(line, action.all, line->value[JSON], &action);
}

static int resume_slices(const struct cli_line *line)
{
	struct target_action action = {.run = resume_one, .all = line->value[ALL] != NULL};

	return targets_each(line, action.all, line->value[JSON], &action);
}

const struct cli_command pause_command = {
	.name = "pause",
	.summary = "stop a slice's work on the GPU for now",
	.arguments = "[NAME...]",
	.about = "Pauses each slice NAME: its processes, also those that join later, wait at their "
		 "next launch until vgpu resume. They keep their memory, and the GPU finishes the "
		 "work in flight.",
	.options = options,
	.environment = given_environment,
	.exits = exits,
	.examples = pause_examples,
	.offer = CLI_SLICE,
	.run = pause_slices,
};

const struct cli_command resume_command = {
	.name = "resume",
	.summary = "let a paused slice go on",
	.arguments = "[NAME...]",
	.about = "Ends the pause of each slice NAME, whether vgpu pause or a monitor paused its "
		 "processes: they go on within 100 ms.",
	.options = options,
	.environment = given_environment,
	.exits = exits,
	.examples = resume_examples,
	.offer = CLI_SLICE,
	.run = resume_slices,
};
