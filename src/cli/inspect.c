/*
 * vgpu inspect: what a region file says, and whether all of it can be true.
 *
 * It is looked at read-only and without its lock, so that a damaged region, or one whose lock a
 * dead process holds, stays as it was found. Where programs run in it, such a look may see a change
 * half done, and a slice that is busy always has one. So what seems wrong then is judged once more
 * under the lock, as any onlooker takes it: not from the dead, though, which would repair what
 * there is to see.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "inspect.h"
#include "region.h"
#include "size.h"

static const char help[] =
	"Usage: vgpu inspect [--json] FILE\n"
	"\n"
	"Prints what the region FILE says of its slice, and checks it. FILE may be in use, or\n"
	"damaged; nothing in it is repaired.\n"
	"\n"
	"  --json   print one JSON document\n"
	"  --help   this text\n"
	"\n"
	"Exit status: 0 when it is whole; 1 when something is wrong with it; 125 when it cannot "
	"be\n"
	"read, or is no region of vgpu; 2 for a wrong command line.\n";

struct request {
	bool json;
	const char *path;
};

/* -- the command line -------------------------------------------------------------------------- */

/* Options have numbers that no letter has, so that optopt tells the two apart. */
enum option_number { JSON = 256, HELP };

static int bad_option(char **argv)
{
	if (optopt >= JSON)
		return cli_fail(CLI_USAGE, "%s: --%s takes no value", argv[optind - 1],
				optopt == HELP ? "help" : "json");
	if (optopt > 0)
		return cli_fail(CLI_USAGE,
				"-%c is no option of vgpu inspect: see vgpu inspect --help",
				optopt);
	return cli_fail(CLI_USAGE, "%s is no option of vgpu inspect: see vgpu inspect --help",
			argv[optind - 1]);
}

/* 0, or what to exit with; *ret_done when that was all. */
static int parse_options(int argc, char **argv, struct request *ret_request, bool *ret_done)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, JSON},
		{"help", no_argument, NULL, HELP},
		{NULL, 0, NULL, 0},
	};
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":h", options, NULL)) >= 0) {
		switch (option) {
		case JSON:
			ret_request->json = true;
			break;
		case 'h':
		case HELP:
			*ret_done = true;
			return fputs(help, stdout) < 0 ? CLI_FAILED : 0;
		default:
			return bad_option(argv);
		}
	}
	if (argc - optind != 1)
		return cli_fail(CLI_USAGE, "%s: vgpu inspect [--json] FILE",
				optind < argc ? "one file at a time" : "no file to inspect");
	ret_request->path = argv[optind];
	return 0;
}

/* -- what is in it ----------------------------------------------------------------------------- */

/* One aligned load, as whoever reads a region without its lock must. */
#define SEE(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)

static void see_device(const struct region *region, unsigned index,
		       struct inspect_device *ret_device)
{
	const struct vgpu_hami_region *hami = &region->file->hami;

	memset(ret_device, 0, sizeof(*ret_device));
	for (unsigned i = 0; i < VGPU_UUID_LEN; i++) {
		char c = SEE(hami->uuids[index][i]);

		if (c == '\0')
			break;
		ret_device->uuid[i] = c > ' ' && c < 127 ? c : '?';
	}
	ret_device->used_bytes = SEE(region->file->own.device[index].used);
	ret_device->limit_bytes = SEE(hami->limit[index]);
	ret_device->cores_pct = SEE(hami->sm_limit[index]);
	if (ret_device->cores_pct >= 100)
		ret_device->cores_pct = 0;
}

static const char *state_of(struct region *region, unsigned slot)
{
	if (region_slot_alive(region, slot))
		return SEE(region->file->hami.slots[slot].status) == VGPU_SLOT_SUSPENDED
			       ? "suspended"
			       : "running";
	return region_slot_dying(region, slot) ? "dying" : "dead";
}

/* Whether a process has the slot: before and after what is seen of it. */
static bool see_process(struct region *region, unsigned slot, struct inspect_process *ret_process)
{
	const struct vgpu_hami_slot *at = &region->file->hami.slots[slot];

	if (!SEE(at->status))
		return false;
	ret_process->slot = slot;
	ret_process->pid = SEE(at->pid);
	ret_process->hostpid = SEE(at->hostpid);
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++) {
		const struct vgpu_hami_usage *usage = &at->used[device];
		struct inspect_held *held = &ret_process->held[device];

		held->context = SEE(usage->context);
		held->module = SEE(usage->module);
		held->data = SEE(usage->data);
		held->offset = SEE(usage->offset);
		held->total = SEE(usage->total);
	}
	ret_process->state = state_of(region, slot);
	return SEE(at->status) != VGPU_SLOT_FREE;
}

static void see_all(struct region *region, struct inspection *found)
{
	const struct vgpu_region_file *file = region->file;
	uint64_t devices = SEE(file->hami.device_count);

	found->version = SEE(file->own.version);
	found->hami_major = SEE(file->hami.version_major);
	found->hami_minor = SEE(file->hami.version_minor);
	found->lock_slot = (int)(SEE(file->own.lock) & VGPU_LOCK_SLOT_MASK) - 1;
	found->takeovers = SEE(file->own.takeovers);
	found->device_count = devices > VGPU_DEVICES_MAX ? VGPU_DEVICES_MAX : (unsigned)devices;
	for (unsigned i = 0; i < found->device_count; i++)
		see_device(region, i, &found->device[i]);
	for (unsigned slot = 0; slot < VGPU_SLOTS_MAX; slot++)
		found->process_count +=
			see_process(region, slot, &found->process[found->process_count]);
}

/* -- whether it can be true -------------------------------------------------------------------- */

static void forget_wrong(struct inspection *found)
{
	while (found->wrong_count > 0)
		free(found->wrong[--found->wrong_count]);
}

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

static bool dead_has_lock(struct region *region)
{
	uint32_t word = SEE(region->file->own.lock);

	return word && !region_slot_alive(region, (word & VGPU_LOCK_SLOT_MASK) - 1);
}

/* Under the lock, if that can be had. */
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
	char used[32], limit[32], cores[32];

	printf("\n%-6s  %-42s  %12s  %12s  %5s\n", "device", "uuid", "memory", "limit", "cores");
	for (unsigned i = 0; i < found->device_count; i++) {
		const struct inspect_device *device = &found->device[i];

		size_format(device->used_bytes, used, sizeof(used));
		if (device->limit_bytes)
			size_format(device->limit_bytes, limit, sizeof(limit));
		else
			snprintf(limit, sizeof(limit), "none");
		if (device->cores_pct)
			snprintf(cores, sizeof(cores), "%u %%", (unsigned)device->cores_pct);
		else
			snprintf(cores, sizeof(cores), "none");
		printf("%-6u  %-42s  %12s  %12s  %5s\n", i, device->uuid, used, limit, cores);
	}
}

static void print_held(const struct inspect_process *process, unsigned device)
{
	const struct inspect_held *held = &process->held[device];
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

/* A line for each device that the process has something of; for the first, if that is none. */
static void print_process(const struct inspection *found, const struct inspect_process *process)
{
	bool printed = false;

	for (unsigned device = 0; device < found->device_count; device++) {
		const struct inspect_held *held = &process->held[device];

		if (!held->context && !held->module && !held->data && !held->offset && !held->total)
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

	if (found->process_count == 0) {
		puts("\nno process");
		return;
	}
	printf("\n%-6s  %10s  %10s  %6s", "slot", "pid", "host pid", "device");
	for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++)
		printf("  %11s", columns[i]);
	puts("  state");
	for (unsigned i = 0; i < found->process_count; i++)
		print_process(found, &found->process[i]);
}

static void print_text(const struct inspection *found)
{
	printf("%s: region of version %u, HAMi's layout %u.%u\n", found->path, found->version,
	       found->hami_major, found->hami_minor);
	if (found->lock_slot >= 0)
		printf("lock: slot %d has it; ", found->lock_slot);
	else
		printf("lock: free; ");
	printf("taken over from the dead: %u\n", found->takeovers);
	print_devices(found);
	print_processes(found);
	putchar('\n');
	for (unsigned i = 0; i < found->wrong_count; i++)
		printf("wrong: %s\n", found->wrong[i]);
	if (found->wrong_count == 0)
		puts("whole");
}

/* -- the command ------------------------------------------------------------------------------- */

static int print(const struct request *request, const struct inspection *found)
{
	int status = 0;

	if (request->json)
		status = inspect_print_json(found);
	else
		print_text(found);
	if (!status && (fflush(stdout) != 0 || ferror(stdout)))
		status =
			cli_fail(CLI_FAILED, "what was found cannot be written: is the disk full?");
	if (!status && found->wrong_count > 0)
		status = CLI_WRONG;
	return status;
}

static int inspect(const struct request *request, struct inspect_process *processes)
{
	struct inspection found = {.path = request->path, .process = processes};
	struct region region = REGION_CLOSED;
	struct fault fault = {""};
	int status;

	if (region_inspect(request->path, &region, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	check(&region, &found);
	see_all(&region, &found);
	region_close(&region);
	status = print(request, &found);
	forget_wrong(&found);
	free(found.wrong);
	return status;
}

int inspect_main(int argc, char **argv)
{
	static struct inspect_process processes[VGPU_SLOTS_MAX];
	struct request request = {false, NULL};
	bool done = false;
	int status = parse_options(argc, argv, &request, &done);

	return status || done ? status : inspect(&request, processes);
}
