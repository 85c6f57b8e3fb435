/* vgpu top: the command, and its snapshots of the machine. top_screen.c has the terminal. */
#include "top.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "commands.h"
#include "ps.h"
#include "size.h"
#include "table.h"

#define FIRST_NS (200 * NS_PER_MS) /* the time for which --batch measures its first figures */

#define INTERVAL_LEAST_MS 100
#define INTERVAL_MOST_MS  3600000

enum { ALL, INTERVAL, COUNT, BATCH, JSON };

static const struct cli_option options[] = {
	[ALL] = {"all", NULL, "also show all GPUs, and the processes on them that are in no slice",
		 CLI_NOTHING, 'a'},
	[INTERVAL] = {"interval", "SECONDS",
		      "look so often, from 0.1 to 3600 seconds; 1 is the default", CLI_NUMBER, 'i'},
	[COUNT] = {"count", "N", "end after N looks", CLI_NUMBER, 'n'},
	[BATCH] = {"batch", NULL, "print each look as vgpu ps does, for a file or a pipe",
		   CLI_NOTHING, 'b'},
	[JSON] = {"json", NULL, "with --batch, print each look as one JSON document on a line",
		  CLI_NOTHING, 'j'},
	{NULL, NULL, NULL, CLI_NOTHING, 0},
};

static const struct cli_row environment[] = {
	{"VGPU_STATE", "the directory where vgpu run keeps slices; only those are shown then"},
	{"VGPU_HAMI", "the directory of HAMi's device plugin, instead of /usr/local/vgpu"},
	{"VGPU_POD_LOGS", "the kubelet's directory of logs, instead of /var/log/pods"},
	{"VGPU_CONTAINER_LOGS",
	 "the kubelet's directory of links to logs, instead of /var/log/containers"},
	{"VGPU_SOCKET", "the socket of vgpud, next to which it says how long turns are"},
	{"TERM", "the terminal's type"},
	{"NO_COLOR", "if set, nothing is coloured"},
	{NULL, NULL},
};

static const struct cli_row exits[] = {
	{"0", "it was ended by its key, or after N looks"},
	{"125", "vgpu failed: there is no such slice, or several are meant; or this vgpu was built "
		"without ncurses"},
	{"2", "the command line is wrong, or this is no terminal that can be drawn on"},
	{NULL, NULL},
};

static const struct cli_row examples[] = {
	{"vgpu top train serve", "two slices"},
	{"vgpu top --batch --all --interval 60 >>slices.log", "a log of everything, once a minute"},
	{NULL, NULL},
};

/* -- history ----------------------------------------------------------------------------------- */

static int by_device(const void *left, const void *right)
{
	const struct top_history *a = left, *b = right;
	int order = strcmp(a->region_path, b->region_path);

	return order ? order : strcmp(a->uuid, b->uuid);
}

static struct top_history *find(const struct top *top, const char *region_path, const char *uuid)
{
	struct top_history wanted = {.region_path = region_path};

	snprintf(wanted.uuid, sizeof(wanted.uuid), "%s", uuid);
	return top->history_count > 0 ? bsearch(&wanted, top->history, top->history_count,
						sizeof(wanted), by_device)
				      : NULL;
}

const struct top_history *top_find_history(const struct top *top,
					   const struct overview_slice *slice,
					   const struct overview_device *device)
{
	return find(top, slice->one->region_path, device->seen.uuid);
}

/* Appends this snapshot's share to the history of the snapshot before. */
static void go_on(const struct top *top, const struct overview_slice *slice,
		  const struct overview_device *device, struct top_history *ret_history)
{
	const struct top_history *before = top_find_history(top, slice, device);

	if (before)
		memcpy(ret_history->pct, before->pct + 1,
		       sizeof(before->pct) - sizeof(before->pct[0]));
	else
		memset(ret_history->pct, -1, sizeof(ret_history->pct));
	ret_history->pct[TOP_HISTORY - 1] = (int16_t)device->cores_used_pct;
	ret_history->region_path = slice->one->region_path;
	snprintf(ret_history->uuid, sizeof(ret_history->uuid), "%s", device->seen.uuid);
}

/* Keeps the histories. Without memory, they are lost. */
static void keep_history(struct top *top, const struct overview *overview)
{
	unsigned count = 0;
	struct top_history *history;

	for (unsigned i = 0; i < overview->count; i++)
		count += overview->slice[i].device_count;
	history = calloc(count + 1, sizeof(*history));
	count = 0;
	for (unsigned i = 0; history && i < overview->count; i++)
		for (unsigned d = 0; d < overview->slice[i].device_count; d++)
			go_on(top, &overview->slice[i], &overview->slice[i].device[d],
			      &history[count++]);
	if (history)
		qsort(history, count, sizeof(*history), by_device);
	free(top->history);
	top->history = history;
	top->history_count = history ? count : 0;
}

/* -- snapshots --------------------------------------------------------------------------------- */

int top_look(struct top *top)
{
	struct overview overview = {.count = 0};
	int error;

	top->trouble.text[0] = '\0';
	error = overview_take(&top->looker, &overview, &top->trouble);
	if (!error)
		overview_compare(&overview, &top->now);
	keep_history(top, &overview);
	overview_free(&top->now);
	top->now = overview;
	return error;
}

static void close_top(struct top *top)
{
	overview_free(&top->now);
	overview_close(&top->looker);
	free(top->history);
}

/* -- without a terminal ------------------------------------------------------------------------ */

static void print_time(void)
{
	time_t now = time(NULL);
	struct tm local;
	char text[64] = "";

	if (localtime_r(&now, &local))
		strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S %z", &local);
	printf("%s\n\n", text);
}

static void wait_ns(uint64_t ns)
{
	struct timespec pause = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};

	nanosleep(&pause, NULL);
}

static int print_look(const struct top *top, bool failed)
{
	struct table_paper paper = table_stdout();

	if (failed && top->json)
		return cli_fail(0, "%s", top->trouble.text);
	if (top->json)
		return ps_print_json_line(&top->now, top->all);
	print_time();
	if (failed)
		cli_say("%s", top->trouble.text);
	else
		ps_print_text(&top->now, top->all, &paper);
	return cli_written(0);
}

/* There is no snapshot before the first one to compare it with, so it measures as vgpu ps does. */
static int batch(struct top *top)
{
	int status = 0;

	for (uint64_t round = 0; !status; round++) {
		int error = top_look(top);

		if (error && round == 0)
			return cli_fail(CLI_FAILED, "%s", top->trouble.text);
		if (round == 0 && overview_has_counts(&top->now))
			overview_measure(&top->now, FIRST_NS);
		if (round > 0 && !top->json)
			putchar('\n');
		status = print_look(top, error != 0);
		if (round + 1 == top->rounds)
			break;
		wait_ns(top->interval_ns);
	}
	return status;
}

/* -- the command ------------------------------------------------------------------------------- */

/* Reads seconds, such as "2" or "0.5", and rounds them to milliseconds. NULL: one second. */
static int read_interval(const char *text, uint64_t *ret_ns)
{
	char *end;
	double ms = text ? strtod(text, &end) * 1000 : 1000;

	if (text && (end == text || *end || !(ms >= INTERVAL_LEAST_MS && ms <= INTERVAL_MOST_MS)))
		return cli_fail(CLI_USAGE,
				"--interval %s is not valid: write seconds from 0.1 to 3600", text);
	*ret_ns = (uint64_t)(ms + 0.5) * NS_PER_MS;
	return 0;
}

static int top(const struct cli_line *line)
{
	struct top top = {.all = line->value[ALL] != NULL, .json = line->value[JSON] != NULL};
	struct fault fault = {""};
	int status = read_interval(line->value[INTERVAL], &top.interval_ns);

	if (status)
		return status;
	if (line->value[COUNT] &&
	    (number_parse(line->value[COUNT], UINT32_MAX, &top.rounds) || top.rounds == 0))
		return cli_fail(CLI_USAGE, "--count %s is not valid: write a number from 1 on",
				line->value[COUNT]);
	if (top.all && line->count > 0)
		return cli_fail(CLI_USAGE, "--all is of all slices: leave it out, or \"%s\"",
				line->argument[0]);
	if (top.json && !line->value[BATCH])
		return cli_fail(CLI_USAGE, "--json goes with --batch: give both, or neither");
	if (!line->value[BATCH] && !(isatty(STDOUT_FILENO) && isatty(STDIN_FILENO)))
		return cli_fail(CLI_USAGE, "vgpu top draws on a terminal, and this is none: use "
					   "--batch, or vgpu ps");
	if (overview_open(&top.looker, line->argument, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	status = line->value[BATCH] ? batch(&top) : top_run(&top);
	close_top(&top);
	return status;
}

const struct cli_command top_command = {
	.name = "top",
	.summary = "watch the slices on this machine",
	.arguments = "[NAME...]",
	.about = "Shows what vgpu ps lists, on a terminal, once a second: how full and how busy "
		 "GPUs are, what slices hold and how much of the GPUs' time they take, and their "
		 "processes. Press h for its keys, and q to end it.",
	.options = options,
	.environment = environment,
	.exits = exits,
	.examples = examples,
	.offer = CLI_SLICE,
	.run = top,
};
