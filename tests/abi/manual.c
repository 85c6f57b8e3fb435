/*
 * What include/vgpu_region.h says, for manual.sh to compare vgpu-region(5) with.
 *
 *     manual rows               "STRUCT OFFSET BYTES FIELD" for each field
 *     manual numbers            every number that the page may use
 *     manual hold FILE COMMAND  makes a region there, and runs the command while this process and
 *                               a dead one are in it: HELD_BYTES each, of LIMIT_BYTES
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "region.h"

#define HELD_BYTES  7340032
#define LIMIT_BYTES 1073741824

struct row {
	const char *of, *field;
	size_t offset, bytes, whole;
};

static const struct row rows[] = {
#define FIELD(type, field)                                                               \
	{#type, #field, offsetof(struct type, field), sizeof(((struct type *)0)->field), \
	 sizeof(struct type)},
#include "region_fields.def"
#undef FIELD
};

#define ROWS (sizeof(rows) / sizeof(*rows))

/* A field that the list lacks leaves a hole in its structure. */
static int print_rows(void)
{
	size_t end = 0;

	for (size_t i = 0; i < ROWS; i++) {
		const struct row *row = &rows[i];

		if (row->offset != end) {
			fprintf(stderr, "%s: something is before %s\n", row->of, row->field);
			return 1;
		}
		printf("%s %zu %zu %s\n", row->of, row->offset, row->bytes, row->field);
		end += row->bytes;
		if (i + 1 < ROWS && strcmp(row->of, rows[i + 1].of) == 0)
			continue;
		if (end != row->whole) {
			fprintf(stderr, "%s: something is after %s\n", row->of, row->field);
			return 1;
		}
		end = 0;
	}
	return 0;
}

static int print_numbers(void)
{
	const size_t own = VGPU_REGION_OFFSET;
	const size_t numbers[] = {
		VGPU_HAMI_MAGIC,
		VGPU_SLOTS_MAX,
		VGPU_SHARES_MAX,
		VGPU_SLOT_LOCK_OFFSET,
		sizeof(struct vgpu_region_file),
		sizeof(struct vgpu_hami_slot),
		sizeof(struct vgpu_region_device),
		own + offsetof(struct vgpu_region_own, device[0].used),
	};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		printf("%zu\n", numbers[i]);
	for (size_t i = 0; i < ROWS; i++)
		printf("%zu\n%zu\n", rows[i].offset, rows[i].bytes);
	return 0;
}

static int be_in(const char *path)
{
	struct region_setup setup = {.device_count = 1,
				     .device[0] = {.uuid = "GPU-0", .memory_bytes = LIMIT_BYTES}};
	static struct region region = REGION_CLOSED;
	struct fault fault = {""};

	if (region_open(path, &setup, &region, &fault) != 0 || region_claim(&region, &fault) != 0 ||
	    region_charge(&region, 0, REGION_DATA, HELD_BYTES, LIMIT_BYTES) != 0) {
		fprintf(stderr, "%s: %s\n", path, fault.text);
		return 1;
	}
	return 0;
}

static int hold(const char *path, const char *command)
{
	int status;
	pid_t child;

	if (be_in(path) != 0)
		return 1;
	child = fork();
	if (child == 0)
		_exit(be_in(path));
	if (waitpid(child, &status, 0) != child || status != 0)
		return 1;
	status = system(command);
	return status == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "rows") == 0)
		return print_rows();
	if (argc == 2 && strcmp(argv[1], "numbers") == 0)
		return print_numbers();
	if (argc == 4 && strcmp(argv[1], "hold") == 0)
		return hold(argv[2], argv[3]);
	return 2;
}
