/* Lists of sizes and of shares, as they stand behind --memory and --cores. */
#include "amounts.h"

#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "size.h"

#define MEMORY_LEAST_BYTES (2 * MIB) /* what the driver hands out at once */
#define NONE               "none"

/* An option whose value is a list, of one for each GPU or one for all. */
struct list_option {
	const char *name, *plural;
	int (*read)(const char *text, uint64_t *ret_value); /* 0, or what to exit with */
};

static int read_size(const char *text, uint64_t *ret_bytes)
{
	*ret_bytes = 0;
	if (strcmp(text, NONE) == 0)
		return 0;
	if (size_parse(text, ret_bytes))
		return cli_fail(CLI_USAGE,
				"--memory \"%s\" is no size: write bytes or a number with k, m, g "
				"or t, such as 8G, or none",
				text);
	if (*ret_bytes < MEMORY_LEAST_BYTES)
		return cli_fail(CLI_USAGE,
				"--memory %s is too little: the driver hands out 2 MiB at once",
				text);
	return 0;
}

static int read_share(const char *text, uint64_t *ret_pct)
{
	*ret_pct = 0;
	if (strcmp(text, NONE) == 0)
		return 0;
	if (percent_parse(text, 100, ret_pct) || *ret_pct == 0)
		return cli_fail(CLI_USAGE,
				"--cores \"%s\" is no share of a GPU's time: write a percentage "
				"from 1 to 100, or none",
				text);
	return 0;
}

static const struct list_option memory_option = {"--memory", "sizes", read_size};
static const struct list_option cores_option = {"--cores", "shares", read_share};

/* One of the list; at the list's end *list is NULL afterwards. */
static int next_value(const struct list_option *option, const char **list, uint64_t *ret_value)
{
	size_t len = strcspn(*list, ",");
	char text[64];
	int status;

	snprintf(text, sizeof(text), "%.*s", (int)len, *list);
	status = option->read(text, ret_value); /* what is longer is wrong anyway */
	*list = (*list)[len] == ',' ? *list + len + 1 : NULL;
	return status;
}

/* A value for each of count GPUs, or one for all. */
static int parse_list(const struct list_option *option, const char *list, unsigned count,
		      uint64_t values[VGPU_DEVICES_MAX])
{
	const char *rest = list;
	unsigned found = 0;

	for (; rest && found < count; found++) {
		int status = next_value(option, &rest, &values[found]);

		if (status)
			return status;
	}
	if (rest || (found != 1 && found != count))
		return cli_fail(CLI_USAGE,
				"%s %s has another number of %s than the slice has GPUs, "
				"which is %u: write one for each, or one for all",
				option->name, list, option->plural, count);
	for (unsigned i = found; i < count; i++)
		values[i] = values[0];
	return 0;
}

int amounts_memory(const char *list, const struct gpus *gpus, bool oversubscribe,
		   uint64_t ret_bytes[VGPU_DEVICES_MAX])
{
	char has[32];
	int status = parse_list(&memory_option, list, gpus->count, ret_bytes);

	for (unsigned i = 0; !status && !oversubscribe && i < gpus->count; i++)
		if (ret_bytes[i] > gpus->gpu[i].memory_bytes)
			return cli_fail(CLI_FAILED,
					"--memory %s is more than GPU %u has, which is %s (%llum): "
					"give at most that, or --oversubscribe",
					list, gpus->gpu[i].index,
					size_format(gpus->gpu[i].memory_bytes, has, sizeof(has)),
					(unsigned long long)(gpus->gpu[i].memory_bytes / MIB));
	return status;
}

int amounts_cores(const char *list, const struct gpus *gpus, uint64_t ret_pct[VGPU_DEVICES_MAX])
{
	return parse_list(&cores_option, list, gpus->count, ret_pct);
}
