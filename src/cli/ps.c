/* vgpu ps: the slices of the machine, and the memory that their processes hold on each GPU. */
#include "ps.h"

#include <limits.h>

#include "clock.h"
#include "commands.h"
#include "table.h"

#define MEASURE_NS (200 * NS_PER_MS)

enum { ALL, JSON, QUIET };

static const struct cli_option options[] = {
	[ALL] = {"all", NULL, "also list all GPUs, and the processes on them that are in no slice",
		 CLI_NOTHING, 'a'},
	[JSON] = {"json", NULL, "print one JSON document", CLI_NOTHING, 'j'},
	[QUIET] = {"quiet", NULL, "print the slices' names alone, a line each", CLI_NOTHING, 'q'},
	{NULL, NULL, NULL, CLI_NOTHING, 0},
};

static const struct cli_row environment[] = {
	{"VGPU_STATE", "the directory where vgpu run keeps slices; only those are listed then"},
	{"VGPU_HAMI", "the directory of HAMi's device plugin, instead of /usr/local/vgpu"},
	{"VGPU_POD_LOGS", "the kubelet's directory of logs, instead of /var/log/pods"},
	{"VGPU_CONTAINER_LOGS",
	 "the kubelet's directory of links to logs, instead of /var/log/containers"},
	{"VGPU_SOCKET", "the socket of vgpud, next to which it says how long turns are"},
	{"COLUMNS", "how wide a line may be, instead of the terminal's width, or of 112"},
	{"NO_COLOR", "if set, nothing is coloured on a terminal"},
	{NULL, NULL},
};

static const struct cli_row exits[] = {
	{"0", "all is listed"},
	{"1", "a region cannot be read, which its line says; all else is listed"},
	{"125", "vgpu failed: there is no such slice, or several are meant; or this vgpu has no "
		"--json"},
	{"2", "the command line is wrong"},
	{NULL, NULL},
};

static const struct cli_row examples[] = {
	{"vgpu ps", "all slices and their processes"},
	{"vgpu ps -q", "the names of all slices"},
	{NULL, NULL},
};

static void print_name(const struct slices *slices, const struct slices_one *one)
{
	char word[PATH_MAX];

	cli_say("%s", slices_word(slices, one, word, sizeof(word)));
}

/* All, or those that are meant; without printing, whether there are such. */
static int each_name(struct slices *slices, char **names, bool printing, struct fault *fault)
{
	for (unsigned i = 0; printing && !*names && i < slices->count; i++)
		print_name(slices, &slices->one[i]);
	for (; *names; names++) {
		const struct slices_one *one;
		int error = slices_find(slices, *names, &one, fault);

		if (error)
			return error;
		if (printing)
			print_name(slices, one);
	}
	return 0;
}

/* Regions are not looked at. */
static int print_names(char **names)
{
	struct fault fault = {""};
	struct slices slices;
	int error = slices_list(&slices, &fault);

	if (!error)
		error = each_name(&slices, names, false, &fault);
	if (!error)
		error = each_name(&slices, names, true, &fault);
	slices_free(&slices);
	return error ? cli_fail(CLI_FAILED, "%s", fault.text) : cli_written(0);
}

static int print(const struct overview *overview, bool all, bool json)
{
	struct table_paper paper = table_stdout();
	int status;

	if (json)
		status = ps_print_json(overview, all);
	else
		ps_print_text(overview, all, &paper);
	if (!json)
		status = cli_written(0);
	for (unsigned i = 0; !status && i < overview->count; i++)
		if (overview->slice[i].state == OVERVIEW_UNREADABLE)
			status = CLI_WRONG;
	return status;
}

static int look(const struct cli_line *line)
{
	struct overview_looker looker = {.name = NULL};
	struct overview overview = {.count = 0};
	struct fault fault = {""};
	int status, error = overview_open(&looker, line->argument, &fault);

	if (!error)
		error = overview_take(&looker, &overview, &fault);
	if (!error && overview_has_counts(&overview))
		overview_measure(&overview, MEASURE_NS);
	if (!error && !looker.usage && line->value[ALL])
		cli_fail(0, "%s: what only NVML knows is left out", looker.no_usage.text);
	status = error ? cli_fail(CLI_FAILED, "%s", fault.text)
		       : print(&overview, line->value[ALL], line->value[JSON]);
	overview_free(&overview);
	overview_close(&looker);
	return status;
}

static int ps(const struct cli_line *line)
{
	if (line->value[QUIET] && (line->value[JSON] || line->value[ALL]))
		return cli_fail(CLI_USAGE, "--quiet prints names alone: leave out --%s",
				line->value[JSON] ? "json" : "all");
	if (line->value[ALL] && line->count > 0)
		return cli_fail(CLI_USAGE, "--all is of all slices: leave it out, or \"%s\"",
				line->argument[0]);
	return line->value[QUIET] ? print_names(line->argument) : look(line);
}

const struct cli_command ps_command = {
	.name = "ps",
	.alias = "ls",
	.summary = "list the slices on this machine, and who is in them",
	.arguments = "[NAME...]",
	.about = "Lists the slices on this machine, those of vgpu run, of vgpu cdi and of HAMi's "
		 "containers: for each GPU what the slice holds and may hold, and its processes. "
		 "NAME is a slice's name or the beginning of one, or a region's path; without "
		 "any, all are listed.",
	.options = options,
	.environment = environment,
	.exits = exits,
	.examples = examples,
	.offer = CLI_SLICE,
	.run = ps,
};
