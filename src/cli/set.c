/*
 * vgpu set: changes the limits of a slice that lives.
 *
 * If the slice has a policy, its files are replaced, each in one step, and the slice's processes
 * see the change within 100 ms. The region gets the limits as well: onlookers read them there, and
 * a slice without a policy has them only there. A process that holds more memory than the new limit
 * keeps it. The region is used under guard (guard.h), because its tenant may truncate it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "amounts.h"
#include "clock.h"
#include "commands.h"
#include "given.h"
#include "gpus.h"
#include "guard.h"
#include "held.h"
#include "policy.h"
#include "region.h"
#include "sight.h"
#include "size.h"
#include "slices.h"
#include "state.h"
#include "sys.h"
#include "targets.h"

enum { MEMORY, CORES, BURST, GPUS, GANG, GROUP, JSON };

static const struct cli_option options[] = {
	[MEMORY] = {"memory", "SIZE[,SIZE...]",
		    "the most GPU memory that the slice may hold, for each of its GPUs or one size "
		    "for all: bytes, or with k, m, g or t, such as 6G, or a percentage of the "
		    "GPU's, such "
		    "as 50%; none for no limit",
		    CLI_NOTHING, 'm'},
	[CORES] =
		{"cores", "PCT[,PCT...]",
		 "the most of the GPUs' time that the slice may take, in percent, or two figures "
		 "such as 30-100: what is assured, and the most while no other slice wants it; for "
		 "each of its GPUs or one for all; none for no limit",
		 CLI_NOTHING, 'c'},
	[BURST] =
		{"burst", "TIME[,TIME...]",
		 "how much unused GPU time the slice may save under its compute limit, and use at "
		 "once, from 0 to 1s, such as 25ms, for each of its GPUs or one for all; default "
		 "for 20ms",
		 CLI_NOTHING, 0},
	[GPUS] = {"gpus", "LIST",
		  "which of the slice's GPUs are meant: indices, UUIDs or the start of one, with "
		  "commas between them, or all (the default)",
		  CLI_GPUS, 'g'},
	[GANG] = {"gang", "WORD",
		  "whether a compute limit throttles all GPUs and processes of the slice as one "
		  "(yes), also together with other slices (the name of a gang), each GPU by itself "
		  "(no), or as one those whose kernels can wait for each other (found)",
		  CLI_GANG, 0},
	[GROUP] = {"group", "GROUP",
		   "for slices of root: the group whose processes may be in the slice, besides "
		   "root's, by name or number; those that are in it stay",
		   CLI_NOTHING, 0},
	[JSON] = {"json", NULL, "print one JSON document", CLI_NOTHING, 'j'},
	{NULL, NULL, NULL, CLI_NOTHING, 0},
};

static const struct cli_row exits[] = {
	{"0", "the slice has these limits"},
	{"125", "vgpu failed, and the slice has the limits that it had: a line on standard error "
		"says why"},
	{"2", "the command line is wrong"},
	{NULL, NULL},
};

static const struct cli_row examples[] = {
	{"vgpu set web --memory 6G --cores 50", "other limits for the slice web"},
	{"vgpu set web --gpus 1 --cores none", "no compute limit on GPU 1"},
	{"vgpu set web --burst 50ms",
	 "a server's requests may use 50 ms of GPU time that it did not use before"},
	{"vgpu set web --gang no", "each GPU's compute limit holds by itself"},
	{NULL, NULL},
};

#define PATIENCE_NS (10 * NS_PER_S) /* the wait for another command that changes the slice */

/* A slice whose limits are being changed. The limits here are the new ones. */
struct change {
	bool limits, gang, group; /* which of them change */
	const struct slices_one *slice;
	int lock; /* excludes other commands that change the policy; -1: not taken */
	struct policy policy;
	struct region region; /* REGION_CLOSED if the slice has no region yet */
	bool is_empty;        /* no process is in the region */
	struct gpus gpus;     /* the slice's GPUs whose limits change */
};

/* -- the present limits ------------------------------------------------------------------------ */

/* Commands that change a policy lock a byte of the slice's lock file, which only its owner may
 * open. A file that others may read would not do. Everybody may read the policies of root's slices,
 * and a user who may read a file may flock it. */
static int lock_policy(struct change *change)
{
	uint64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
	char path[PATH_MAX];
	int error;

	snprintf(path, sizeof(path), "%s/%s/" STATE_LOCK, change->slice->state_path,
		 change->slice->name);
	change->lock = error = sys_open_regular(path, O_RDWR | O_NONBLOCK);
	if (change->lock < 0)
		return error;
	while ((error = sys_lock_byte(change->lock, 0)) == -EAGAIN) {
		if (clock_now_ns() >= deadline_ns)
			return -ETIMEDOUT;
		sys_sleep_ns(10 * NS_PER_MS);
	}
	return error;
}

static int open_policy(struct change *change)
{
	const char *path = change->slice->policy_path;
	struct fault fault = {""};
	int error;

	if (change->slice->kind == SLICES_KUBERNETES)
		return cli_fail(CLI_FAILED,
				"the slice %s is a container's of Kubernetes: its limits are those "
				"of its resource, in the configuration of vgpu-device-plugin",
				change->slice->name);
	if (change->slice->kind == SLICES_CLAIM)
		return cli_fail(CLI_FAILED,
				"the slice %s is a ResourceClaim's of Kubernetes: its limits are "
				"what the scheduler gave to the claim; make another claim for "
				"others",
				change->slice->name);
	error = lock_policy(change);
	if (error == -ETIMEDOUT)
		return cli_fail(CLI_FAILED,
				"another vgpu set changes the slice %s, and does not finish: is it "
				"stopped? Continue or end it",
				change->slice->name);
	if (error)
		return cli_fail(CLI_FAILED,
				"the slice %s has no policy in %.300s (%s): vgpu ps "
				"lists the slices that live",
				change->slice->name, path, strerror(-error));
	if (policy_read(path, &change->policy, &fault))
		return cli_fail(CLI_FAILED, "%s",
				fault.text[0] ? fault.text : "the slice has just ended");
	return 0;
}

/* Reads the limits of a slice without a policy from its region. */
static void read_region(struct change *change)
{
	static struct sight_process processes[VGPU_SLOTS_MAX];
	struct sight sight = {.process = processes};

	sight_take(&change->region, &sight);
	change->policy.device_count = sight.device_count;
	for (unsigned i = 0; i < sight.device_count; i++) {
		struct policy_device *device = &change->policy.device[i];

		memcpy(device->uuid, sight.device[i].uuid, VGPU_UUID_LEN);
		device->uuid[VGPU_UUID_LEN - 1] = '\0';
		device->memory_bytes = sight.device[i].limit_bytes;
		device->cores_pct = sight.device[i].cores_pct;
		device->cores_most_pct = sight.device[i].cores_most_pct;
		device->burst_ns = sight.device[i].burst_ns;
	}
}

static int fail_truncated(const struct change *change)
{
	return cli_fail(CLI_FAILED, "the region %.300s was truncated just now: try again",
			change->slice->region_path);
}

static int open_slice(struct change *change)
{
	struct fault fault = {""};
	int error = region_view(change->slice->region_path, &change->region, &fault);
	bool has_policy = change->slice->policy_path != NULL;

	change->is_empty = error || region_living(&change->region) == 0;
	if (guard_lost())
		return fail_truncated(change);
	if (error && !(has_policy && error == -ENOENT))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	if (!error && !change->region.writable)
		return cli_fail(CLI_FAILED,
				"the region %.300s may not be written by this user: be its owner, "
				"or root",
				change->slice->region_path);
	if (change->is_empty && held_by_none(change->slice, 0))
		return cli_fail(CLI_FAILED,
				"nothing lives in the slice %s, and the next vgpu run removes it: "
				"there is nothing to set",
				change->slice->name);
	if (has_policy)
		return open_policy(change);
	read_region(change);
	return guard_lost() ? fail_truncated(change) : 0;
}

static void close_slice(struct change *change)
{
	region_close(&change->region);
	if (change->lock >= 0)
		close(change->lock);
}

/* -- which GPUs -------------------------------------------------------------------------------- */

/* The slice's GPUs in NVML's order. Without NVML: in the slice's order, with unknown sizes. */
static void find_gpus(struct change *change, struct gpus *ret_gpus)
{
	const struct policy *policy = &change->policy;
	struct gpus all;

	*ret_gpus = (struct gpus){.count = 0};
	if (gpus_find(&all, NULL) == 0)
		for (unsigned i = 0; i < all.count; i++)
			if (policy_find(policy, all.gpu[i].uuid) >= 0)
				ret_gpus->gpu[ret_gpus->count++] = all.gpu[i];
	if (ret_gpus->count == policy->device_count)
		return;
	ret_gpus->count = policy->device_count;
	for (unsigned i = 0; i < policy->device_count; i++) {
		ret_gpus->gpu[i] = (struct gpu){.index = i, .memory_bytes = UINT64_MAX};
		memcpy(ret_gpus->gpu[i].uuid, policy->device[i].uuid, VGPU_UUID_LEN);
	}
}

/* Selects the slice's GPUs that --gpus names by their indices on the machine. */
static int select_gpus(struct change *change, const char *list)
{
	struct fault fault = {""};
	struct gpus all, own;

	find_gpus(change, &own);
	if (!list || strcmp(list, "all") == 0) {
		change->gpus = own;
		return 0;
	}
	if (gpus_find(&all, NULL))
		all = own;
	if (gpus_select(&all, list, &change->gpus, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	for (unsigned i = 0; i < change->gpus.count; i++)
		if (!gpus_by_uuid(&own, change->gpus.gpu[i].uuid))
			return cli_fail(CLI_FAILED,
					"GPU %u is not in the slice %s: a slice's GPUs stay those "
					"that it was made with",
					change->gpus.gpu[i].index, change->slice->name);
	return 0;
}

static int read_amounts(const struct cli_line *line, struct change *change)
{
	uint64_t memory_bytes[VGPU_DEVICES_MAX], burst_ns[VGPU_DEVICES_MAX];
	struct policy_cores share[VGPU_DEVICES_MAX];
	const char *memory = line->value[MEMORY], *cores = line->value[CORES];
	const char *burst = line->value[BURST];
	int status = select_gpus(change, line->value[GPUS]);

	if (!status && memory)
		status = amounts_memory(memory, &change->gpus, change->policy.oversubscribe,
					memory_bytes);
	if (!status && cores)
		status = amounts_cores(cores, &change->gpus, share);
	if (!status && burst)
		status = amounts_burst(burst, &change->gpus, burst_ns);
	if (!status && line->value[GANG])
		status = amounts_gang(line->value[GANG], &change->policy.gang);
	if (!status && line->value[GROUP]) {
		status = amounts_group(line->value[GROUP], &change->policy.group);
		change->policy.has_group = true;
	}
	for (unsigned i = 0; !status && i < change->gpus.count; i++) {
		int at = policy_find(&change->policy, change->gpus.gpu[i].uuid);

		if (memory)
			change->policy.device[at].memory_bytes = memory_bytes[i];
		if (cores) {
			change->policy.device[at].cores_pct = share[i].pct;
			change->policy.device[at].cores_most_pct = share[i].most_pct;
		}
		if (burst)
			change->policy.device[at].burst_ns = burst_ns[i];
	}
	return status;
}

/* -- the change -------------------------------------------------------------------------------- */

static void tell_region(struct change *change)
{
	for (unsigned i = 0; i < change->gpus.count; i++) {
		const char *uuid = change->gpus.gpu[i].uuid;
		const struct policy_device *device =
			&change->policy.device[policy_find(&change->policy, uuid)];
		int index = region_find_device(&change->region, uuid);

		const struct region_limits limits = {.memory_bytes = device->memory_bytes,
						     .cores_pct = device->cores_pct,
						     .cores_most_pct = device->cores_most_pct,
						     .burst_ns = device->burst_ns};

		if (index >= 0)
			region_set_limits(&change->region, (unsigned)index, &limits);
	}
}

/* Prints "6 GiB, 50 %, burst 25ms", and how much more than that the slice holds. */
static void report_gpu(struct change *change, const struct gpu *gpu)
{
	const struct policy_device *device =
		&change->policy.device[policy_find(&change->policy, gpu->uuid)];
	int index = change->region.file ? region_find_device(&change->region, gpu->uuid) : -1;
	uint64_t used = index < 0 ? 0 : region_used(&change->region, (unsigned)index);
	char size[32] = "no limit", cores[32] = "no limit", held[96] = "", holds[32];
	char burst[64] = "", time[32], pcts[32];

	if (device->memory_bytes)
		size_format(device->memory_bytes, size, sizeof(size));
	if (device->cores_pct)
		snprintf(cores, sizeof(cores), "%.28s %%",
			 policy_cores_name(device->cores_pct, device->cores_most_pct, pcts,
					   sizeof(pcts)));
	if (device->burst_ns)
		snprintf(burst, sizeof(burst), ", burst %s",
			 policy_burst_name(device->burst_ns, time, sizeof(time)));
	if (device->memory_bytes && used > device->memory_bytes)
		snprintf(held, sizeof(held), "; it holds %s: no new memory until that fits",
			 size_format(used, holds, sizeof(holds)));
	else if (change->is_empty && !change->slice->policy_path)
		snprintf(held, sizeof(held),
			 "; no process is in it, and limits of the next one replace these");
	cli_say("%s: GPU %u: memory %s, cores %s%s%s", change->slice->name, gpu->index, size, cores,
		burst, held);
}

/* Fills in the same report for --json. */
static void fill_gpu(struct change *change, const struct gpu *gpu, struct target_gpu *ret_gpu)
{
	const struct policy_device *device =
		&change->policy.device[policy_find(&change->policy, gpu->uuid)];
	int index = change->region.file ? region_find_device(&change->region, gpu->uuid) : -1;

	*ret_gpu = (struct target_gpu){
		.index = gpu->index,
		.uuid = gpu->uuid,
		.memory_limit_bytes = device->memory_bytes,
		.memory_used_bytes = index < 0 ? 0 : region_used(&change->region, (unsigned)index),
		.cores_pct = device->cores_pct,
		.cores_most_pct = device->cores_most_pct,
		.burst_ns = device->burst_ns,
	};
}

static int report_json(struct change *change, struct target_document *document)
{
	static struct target target;

	target.name = change->slice->name;
	target.slice = change->slice;
	target.changed = true;
	if (change->slice->policy_path)
		target.gang = policy_gang_word(&change->policy.gang);
	for (unsigned i = 0; i < change->gpus.count && i < VGPU_DEVICES_MAX; i++)
		fill_gpu(change, &change->gpus.gpu[i], &target.gpu[target.gpu_count++]);
	target_document_add(document, &target);
	return target_document_print(document);
}

/* Gives the region's file to the policy's group. */
static int give_group(const struct change *change)
{
	int fd = sys_open_regular(change->slice->region_path, O_RDWR | O_NONBLOCK), error = fd;

	if (fd == -ENOENT)
		return 0; /* the process that makes the region reads the policy */
	if (fd >= 0) {
		error = sys_fchown(fd, -1, (int)change->policy.group);
		if (!error)
			error = sys_fchmod(fd, 0660);
		sys_close(fd);
	}
	if (error < 0)
		return cli_fail(CLI_FAILED, "the region %.300s cannot be given to the group: %s",
				change->slice->region_path, strerror(-error));
	return 0;
}

static int apply(struct change *change, struct target_document *document)
{
	struct fault fault = {""};

	if (change->gang && change->policy.gang.rule == POLICY_GANG_NAMED &&
	    change->slice->state_path && state_make_gangs(change->slice->state_path, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	if (change->slice->policy_path &&
	    policy_write(change->slice->policy_path, &change->policy, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	if (change->group && give_group(change))
		return CLI_FAILED;
	if (change->limits && change->region.file)
		tell_region(change);
	if (guard_lost())
		return fail_truncated(change);
	if (change->region.file && region_examine(&change->region)) {
		region_why_lost(&change->region, &fault);
		return cli_fail(CLI_FAILED, "%s", fault.text);
	}
	if (document)
		return report_json(change, document);
	for (unsigned i = 0; change->limits && i < change->gpus.count; i++)
		report_gpu(change, &change->gpus.gpu[i]);
	if (change->gang)
		cli_say("%s: gang %s", change->slice->name, policy_gang_word(&change->policy.gang));
	if (change->group)
		cli_say("%s: group %u", change->slice->name, change->policy.group);
	return cli_written(0);
}

static int set_slice(const struct cli_line *line, const struct slices_one *slice)
{
	struct change change = {
		.limits = line->value[MEMORY] || line->value[CORES] || line->value[BURST],
		.gang = line->value[GANG] != NULL,
		.group = line->value[GROUP] != NULL,
		.slice = slice,
		.lock = -1,
		.region = REGION_CLOSED,
	};
	struct target_document *document = NULL;
	struct fault fault = {""};
	int status = line->value[JSON] ? target_document_open(&document) : 0;

	if (!status && given_act_for(slice, &fault))
		status = cli_fail(CLI_FAILED, "%s", fault.text);
	if (!status && change.gang && !slice->policy_path)
		status = cli_fail(CLI_FAILED,
				  "the slice %s has no policy here, and its region does not say "
				  "whether it is a gang: leave --gang out",
				  slice->name);
	if (!status && change.group && (!slice->policy_path || slice->owner != 0))
		status =
			cli_fail(CLI_FAILED, "the slice %s is not one of root's: leave --group out",
				 slice->name);
	guard_begin();
	if (!status)
		status = open_slice(&change);
	if (!status)
		status = read_amounts(line, &change);
	if (!status)
		status = apply(&change, document);
	close_slice(&change);
	guard_end();
	return status;
}

static int set(const struct cli_line *line)
{
	const struct slices_one *slice;
	struct slices slices;
	int status;

	if (line->count != 1)
		return cli_fail(CLI_USAGE, "%s: vgpu set [OPTION...] NAME",
				line->count > 1 ? "one slice at a time" : "no slice to set");
	if (!line->value[MEMORY] && !line->value[CORES] && !line->value[BURST] &&
	    !line->value[GANG] && !line->value[GROUP])
		return cli_fail(
			CLI_USAGE,
			"nothing to set: give --memory, --cores, --burst, --gang, --group, or "
			"several of them");
	status = given_find(line->argument[0], &slices, &slice);
	if (!status)
		status = set_slice(line, slice);
	slices_free(&slices);
	return status;
}

const struct cli_command set_command = {
	.name = "set",
	.summary = "give a slice other limits while it runs",
	.arguments = "NAME",
	.about = "Changes the limits of the slice NAME, or of the one whose region file NAME is. "
		 "Its programs run on, and go by the new limits within 100 ms.",
	.options = options,
	.environment = given_environment,
	.exits = exits,
	.examples = examples,
	.offer = CLI_SLICE,
	.run = set,
};
