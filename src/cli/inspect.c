/*
 * vgpu inspect: prints the content of a region file, and checks its invariants.
 *
 * The region is first checked read-only and without its lock. So a damaged region, or one whose
 * lock a dead process holds, stays as it was found. While programs run in the slice, such a
 * check may see an incomplete change. If it finds an error then, the region is checked again
 * under the lock, which is taken as any onlooker takes it. If a dead process has the lock, the
 * second check is left out: a takeover of the lock would repair the region. Other processes may
 * truncate the file, so all of this is done under guard (guard.h).
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "given.h"
#include "guard.h"
#include "inspect.h"
#include "policy.h"
#include "region.h"
#include "size.h"
#include "slices.h"

enum { JSON };

static const struct cli_option options[] = {
	[JSON] = {"json", NULL, "print one JSON document", CLI_NOTHING, 'j'},
	{NULL, NULL, NULL, CLI_NOTHING, 0},
};

static const struct cli_row exits[] = {
	{"0", "the region is whole"},
	{"1", "something is wrong with it"},
	{"125", "vgpu failed: there is no such slice; its region cannot be read, is empty, is no "
		"region, or is of another version or program; or this vgpu has no --json"},
	{"2", "the command line is wrong"},
	{NULL, NULL},
};

static const struct cli_row examples[] = {
	{"vgpu inspect web", "the region of the slice web"},
	{"vgpu inspect /run/vgpu/web/region", "the same by its path"},
	{NULL, NULL},
};

/* -- checking ---------------------------------------------------------------------------------- */

static void forget_wrong(struct inspection *found)
{
	while (found->wrong_count > 0)
		free(found->wrong[--found->wrong_count]);
}

/* Adds a copy of the line to the errors. Ends the program if there is no memory. */
static void keep_wrong(void *arg, const char *line)
{
	struct inspection *found = arg;
	char **wrong = realloc(found->wrong, (found->wrong_count + 1) * sizeof(*wrong));
	char *copy = strdup(line);

	if (wrong)
		found->wrong = wrong;
	if (!wrong || !copy)
		exit(cli_fail(CLI_FAILED, "out of memory"));
	found->wrong[found->wrong_count++] = copy;
}

/* Whether a dead process has the region's lock. */
static bool dead_has_lock(struct region *region)
{
	uint32_t word = __atomic_load_n(&region->file->own.lock, __ATOMIC_ACQUIRE);

	return word && !region_slot_alive(region, (word & VGPU_LOCK_SLOT_MASK) - 1);
}

/* Replaces the errors by those of a check under the lock, if this user may take the lock. */
static void check_again(struct inspection *found)
{
	struct region region = REGION_CLOSED;

	if (region_view(found->path, &region, NULL) == 0 && region.writable &&
	    !dead_has_lock(&region)) {
		forget_wrong(found);
		region_check(&region, keep_wrong, found);
	}
	region_close(&region);
}

static void check(struct region *region, struct inspection *found)
{
	if (region_check(region, keep_wrong, found) > 0 && region_living(region) > 0 &&
	    !dead_has_lock(region))
		check_again(found);
}

/* -- for people -------------------------------------------------------------------------------- */

static void print_devices(const struct inspection *found)
{
	char used[32], limit[32], cores[32], burst[32], pcts[32];

	printf("\n%-6s  %-42s  %12s  %12s  %5s  %7s\n", "device", "uuid", "memory", "limit",
	       "cores", "burst");
	for (unsigned i = 0; i < found->sight.device_count; i++) {
		const struct sight_device *device = &found->sight.device[i];

		size_format(device->used_bytes, used, sizeof(used));
		if (device->limit_bytes)
			size_format(device->limit_bytes, limit, sizeof(limit));
		else
			snprintf(limit, sizeof(limit), "none");
		if (device->cores_pct)
			snprintf(cores, sizeof(cores), "%.28s %%",
				 policy_cores_name(device->cores_pct, device->cores_most_pct, pcts,
						   sizeof(pcts)));
		else
			snprintf(cores, sizeof(cores), "none");
		policy_burst_name(device->burst_ns, burst, sizeof(burst));
		printf("%-6u  %-42s  %12s  %12s  %5s  %7s\n", i, device->uuid, used, limit, cores,
		       burst);
	}
}

static void print_held(const struct sight_process *process, unsigned device)
{
	const struct sight_held *held = &process->held[device];
	const uint64_t bytes[] = {held->context, held->module, held->data, held->offset,
				  held->total};
	char host[16] = "-", size[32];

	if (process->hostpid)
		snprintf(host, sizeof(host), "%d", process->hostpid);
	printf("%-6u  %10d  %10s  %6u", process->slot, process->pid, host, device);
	for (size_t i = 0; i < sizeof(bytes) / sizeof(*bytes); i++)
		printf("  %11s", size_format(bytes[i], size, sizeof(size)));
	printf("  %s\n", process->state);
}

/* Prints a line for each device on which the process holds memory. A process that holds none
 * gets one line, for device 0. */
static void print_process(const struct inspection *found, const struct sight_process *process)
{
	bool printed = false;

	for (unsigned device = 0; device < found->sight.device_count; device++) {
		if (!sight_holds(process, device))
			continue;
		print_held(process, device);
		printed = true;
	}
	if (!printed)
		print_held(process, 0);
}

static void print_processes(const struct inspection *found)
{
	static const char *const columns[] = {"context", "module", "data", "offset", "total"};

	if (found->sight.process_count == 0) {
		puts("\nno process");
		return;
	}
	printf("\n%-6s  %10s  %10s  %6s", "slot", "pid", "host pid", "device");
	for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++)
		printf("  %11s", columns[i]);
	puts("  state");
	for (unsigned i = 0; i < found->sight.process_count; i++)
		print_process(found, &found->sight.process[i]);
}

static void print_text(const struct inspection *found)
{
	cli_say("%s: region of version %u, HAMi's layout %u.%u", found->path, found->sight.version,
		found->sight.hami_major, found->sight.hami_minor);
	if (found->sight.lock_slot >= 0)
		printf("lock: slot %d has it; ", found->sight.lock_slot);
	else
		printf("lock: free; ");
	printf("taken over from the dead: %u\n", found->sight.takeovers);
	if (found->gang)
		printf("gang: %s\n", found->gang);
	if (found->sight.paused)
		puts("paused: every process waits before its next launch");
	print_devices(found);
	print_processes(found);
	putchar('\n');
	for (unsigned i = 0; i < found->wrong_count; i++)
		cli_say("wrong: %s", found->wrong[i]);
	if (found->wrong_count == 0)
		puts("whole");
}

/* -- the command ------------------------------------------------------------------------------- */

static int print(bool json, const struct inspection *found)
{
	int status = 0;

	if (json)
		status = inspect_print_json(found);
	else
		print_text(found);
	if (!status)
		status = cli_written(0);
	if (!status && found->wrong_count > 0)
		status = CLI_WRONG;
	return status;
}

/* Returns the policy's word for the slice's gang; NULL: the slice has no readable policy. The
 * policy is read with its owner's rights. */
static const char *gang_of(const struct slices_one *one)
{
	static struct policy policy;
	int error;

	if (!one->policy_path || given_act_for(one, NULL))
		return NULL;
	error = policy_read(one->policy_path, &policy, NULL);
	given_act_again();
	return error ? NULL : policy_gang_word(&policy.gang);
}

/*
 * Finds the region that `name` means: the path of a file, or the name of a slice. A path
 * without "/" means a file only if no slice has that name. *ret_gang is set for a slice. If the
 * path is wrong, or the file damaged, the function succeeds, and region_inspect reports the
 * error.
 */
static int find_region(const char *name, char ret_path[PATH_MAX], const char **ret_gang,
		       struct fault *fault)
{
	bool is_file = access(name, F_OK) == 0;
	const struct slices_one *one;
	struct slices slices = {0, NULL};
	int error = 0;

	snprintf(ret_path, PATH_MAX, "%s", name);
	if (is_file && strchr(name, '/'))
		return 0;
	error = slices_list(&slices, fault);
	if (!error)
		error = slices_find(&slices, name, &one, fault);
	if (!error) {
		snprintf(ret_path, PATH_MAX, "%s", one->region_path);
		*ret_gang = gang_of(one);
	} else if (error == -ENOENT && (is_file || strchr(name, '/'))) {
		error = 0; /* region_inspect says what is wrong with it */
	}
	slices_free(&slices);
	return error;
}

static int inspect(const struct cli_line *line)
{
	static struct sight_process processes[VGPU_SLOTS_MAX];
	struct inspection found = {.sight.process = processes};
	struct region region = REGION_CLOSED;
	struct fault fault = {""};
	char path[PATH_MAX];
	int status;

	if (line->count != 1)
		return cli_fail(CLI_USAGE, "%s: vgpu inspect [OPTION...] NAME",
				line->count > 1 ? "one slice at a time" : "no slice to inspect");
	if (find_region(line->argument[0], path, &found.gang, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	found.path = path;
	guard_begin();
	fault.text[0] = '\0';
	if (region_inspect(path, &region, &fault) == 0) {
		check(&region, &found);
		sight_take(&region, &found.sight);
	}
	region_close(&region);
	if (guard_end())
		fault_set(&fault, 0, "the region %.300s was truncated just now: try again", path);
	if (fault.text[0])
		return cli_fail(CLI_FAILED, "%s", fault.text);
	status = print(line->value[JSON] != NULL, &found);
	forget_wrong(&found);
	free(found.wrong);
	return status;
}

const struct cli_command inspect_command = {
	.name = "inspect",
	.summary = "print and check a slice's region file",
	.arguments = "NAME",
	.about = "Prints what the region of the slice NAME says, and checks it. NAME may be the "
		 "region's path as well. The region may be in use, or damaged; nothing in it is "
		 "repaired.",
	.options = options,
	.environment = given_environment,
	.exits = exits,
	.examples = examples,
	.offer = CLI_SLICE_OR_FILE,
	.run = inspect,
};
