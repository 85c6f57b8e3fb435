/*
 * Reads lists of sizes, of shares and of times. A list is read once for its form, without GPUs
 * (errors: CLI_USAGE), and once for each GPU (errors: CLI_FAILED).
 */
#include "amounts.h"

#include <grp.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "size.h"

#define GRANULE_BYTES (2 * MIB) /* the driver takes device memory in this unit */
#define NONE          "none"
#define SHARE_MOST    ((uint64_t)1000) /* factor of most_pct in a share: see read_share */
#define PERCENT_MAX   10000            /* of a GPU's memory; above 100 only with --oversubscribe */

/* An option whose value is a list: an amount for each GPU, or one for all. */
struct list_option {
	const char *name, *plural;
	/* Reads one amount, for that GPU; NULL: only its form is checked. Returns 0, or the exit
	 * status after a line on stderr. */
	int (*read)(const char *text, const struct gpu *gpu, uint64_t *ret_value);
};

/* Reads a percentage of the GPU's memory: len characters of text, which do not include the "%".
 * The result is rounded down to whole granules. */
static int read_percent(const char *text, size_t len, const struct gpu *gpu, uint64_t *ret_bytes)
{
	uint64_t pct, all = gpu ? gpu->memory_bytes : 0;
	char number[64];

	snprintf(number, sizeof(number), "%.*s", (int)len, text);
	if (number_parse(number, PERCENT_MAX, &pct) || pct == 0)
		return cli_fail(
			CLI_USAGE,
			"--memory \"%s\" is no size: a percentage of a GPU's memory is a whole "
			"number from 1 to 100, with --oversubscribe to 10000, and %% after it, "
			"such as "
			"50%%",
			text);
	*ret_bytes = all / 100 * pct + all % 100 * pct / 100;
	*ret_bytes -= *ret_bytes % GRANULE_BYTES;
	if (gpu && *ret_bytes == 0)
		return cli_fail(CLI_FAILED,
				"--memory %s of GPU %u is less than 2 MiB, the unit in which the "
				"driver takes "
				"memory: give more",
				text, gpu->index);
	return 0;
}

static int read_size(const char *text, const struct gpu *gpu, uint64_t *ret_bytes)
{
	size_t len = strlen(text);

	*ret_bytes = 0;
	if (strcmp(text, NONE) == 0)
		return 0;
	if (len > 0 && text[len - 1] == '%')
		return read_percent(text, len - 1, gpu, ret_bytes);
	if (size_parse(text, ret_bytes))
		return cli_fail(
			CLI_USAGE,
			"--memory \"%s\" is no size: write bytes or a number with k, m, g "
			"or t, such as 8G, or a percentage of the GPU's memory, such as 50%%, or "
			"none",
			text);
	if (*ret_bytes < GRANULE_BYTES)
		return cli_fail(
			CLI_USAGE,
			"--memory %s is too little: give at least 2m, the unit in which the driver "
			"takes memory",
			text);
	return 0;
}

/* Reads a share of the GPU's time. *ret_share has both of its figures: cores_pct + SHARE_MOST *
 * cores_most_pct. */
static int read_share(const char *text, const struct gpu *gpu, uint64_t *ret_share)
{
	struct policy_cores cores;

	(void)gpu;
	*ret_share = 0;
	if (strcmp(text, NONE) == 0)
		return 0;
	if (!policy_cores_parse(text, &cores))
		return cli_fail(CLI_USAGE,
				"--cores \"%s\" is no share of a GPU's time: write a percentage "
				"from 1 to 100, or two such as 30-100, what is assured and the "
				"most, or none",
				text);
	*ret_share = cores.pct + SHARE_MOST * cores.most_pct;
	return 0;
}

static int read_time(const char *text, const struct gpu *gpu, uint64_t *ret_ns)
{
	(void)gpu;
	*ret_ns = 0;
	if (strcmp(text, "default") == 0 || policy_burst_parse(text, ret_ns))
		return 0;
	return cli_fail(CLI_USAGE,
			"--burst \"%s\" is no time that a slice may save: write 0 to 1s, such as "
			"25ms, or default",
			text);
}

static const struct list_option memory_option = {"--memory", "sizes", read_size};
static const struct list_option cores_option = {"--cores", "shares", read_share};
static const struct list_option burst_option = {"--burst", "times", read_time};

/* Reads the list's first entry, and moves *list to the next one; NULL: there is no other. */
static int take_entry(const struct list_option *option, const char **list, const struct gpu *gpu,
		      uint64_t *ret_value)
{
	size_t len = strcspn(*list, ",");
	char text[64];

	snprintf(text, sizeof(text), "%.*s", (int)len, *list); /* no valid entry is longer */
	*list = (*list)[len] == ',' ? *list + len + 1 : NULL;
	return option->read(text, gpu, ret_value);
}

/* Checks the form of each entry. *ret_limits: whether any entry is not "none". */
static int check_list(const struct list_option *option, const char *list, bool *ret_limits)
{
	uint64_t value;
	int status = 0;

	*ret_limits = false;
	while (!status && list) {
		bool is_none = strncmp(list, NONE, strlen(NONE)) == 0;

		status = take_entry(option, &list, NULL, &value);
		*ret_limits |= !is_none;
	}
	return status;
}

/* Reads the list for the GPUs. Sets an element of ret_values for each of them. */
static int read_list(const struct list_option *option, const char *list, const struct gpus *gpus,
		     uint64_t ret_values[VGPU_DEVICES_MAX])
{
	const char *rest = list;
	unsigned count = 1;
	bool limits;
	int status = check_list(option, list, &limits);

	if (status)
		return status;
	for (const char *comma = list; (comma = strchr(comma, ',')); comma++)
		count++;
	if (count != 1 && count != gpus->count)
		return cli_fail(
			CLI_FAILED,
			"%s %s has %u %s, and the number of the slice's GPUs is %u: write one "
			"for each, or one for all",
			option->name, list, count, option->plural, gpus->count);
	for (unsigned i = 0; !status && i < gpus->count; i++) {
		if (count == 1)
			rest = list;
		status = take_entry(option, &rest, &gpus->gpu[i], &ret_values[i]);
	}
	return status;
}

int amounts_check_memory(const char *list, bool *ret_limits)
{
	return check_list(&memory_option, list, ret_limits);
}

int amounts_check_cores(const char *list, bool *ret_limits)
{
	return check_list(&cores_option, list, ret_limits);
}

int amounts_check_burst(const char *list)
{
	bool limits;

	return check_list(&burst_option, list, &limits);
}

int amounts_memory(const char *list, const struct gpus *gpus, bool oversubscribe,
		   uint64_t ret_bytes[VGPU_DEVICES_MAX])
{
	char has[32];
	int status = read_list(&memory_option, list, gpus, ret_bytes);

	for (unsigned i = 0; !status && !oversubscribe && i < gpus->count; i++)
		if (ret_bytes[i] > gpus->gpu[i].memory_bytes)
			return cli_fail(
				CLI_FAILED,
				"--memory %s is more than GPU %u has, which is %s (%llum): "
				"give at most that; only a slice that was made with vgpu run "
				"--oversubscribe may have more",
				list, gpus->gpu[i].index,
				size_format(gpus->gpu[i].memory_bytes, has, sizeof(has)),
				(unsigned long long)(gpus->gpu[i].memory_bytes / MIB));
	return status;
}

int amounts_cores(const char *list, const struct gpus *gpus,
		  struct policy_cores ret_cores[VGPU_DEVICES_MAX])
{
	uint64_t share[VGPU_DEVICES_MAX];
	int status = read_list(&cores_option, list, gpus, share);

	for (unsigned i = 0; !status && i < gpus->count; i++)
		ret_cores[i] = (struct policy_cores){.pct = (unsigned)(share[i] % SHARE_MOST),
						     .most_pct = (unsigned)(share[i] / SHARE_MOST)};
	return status;
}

int amounts_burst(const char *list, const struct gpus *gpus, uint64_t ret_ns[VGPU_DEVICES_MAX])
{
	return read_list(&burst_option, list, gpus, ret_ns);
}

int amounts_group(const char *word, unsigned *ret_group)
{
	const struct group *group = getgrnam(word);
	uint64_t number;

	if (!group && number_parse(word, POLICY_GROUP_MAX, &number))
		return cli_fail(
			CLI_USAGE,
			"--group \"%s\" is no group of this machine: write a group's name or "
			"number",
			word);
	*ret_group = group ? (unsigned)group->gr_gid : (unsigned)number;
	return 0;
}

int amounts_gang(const char *word, struct policy_gang *ret_gang)
{
	if (strcmp(word, "found") == 0) {
		*ret_gang = (struct policy_gang){.rule = POLICY_GANG_FOUND};
		return 0;
	}
	if (policy_gang_parse(word, ret_gang))
		return 0;
	return cli_fail(CLI_USAGE,
			"--gang \"%s\" does not say whether the slice is a gang: write yes or no, "
			"or found for what holds without --gang, or a gang's name: 1 to 64 "
			"letters, digits, \".\", \"_\" and \"-\", no \".\" first",
			word);
}
