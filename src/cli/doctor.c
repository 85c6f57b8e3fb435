/*
 * vgpu doctor: checks that this machine, this slice and a program meet vgpu's needs.
 *
 * The checks are in tables, by subject, in doctor_*.c. They change nothing: a check that must
 * write a file uses one without a name. The findings of a check are printed immediately after
 * the check. So if a check hangs, as a driver may, the user sees which checks are done.
 */
#include "doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"

#define NAME_COLUMNS 13 /* the length of the longest name of a check */

enum { JSON };

static const struct cli_option options[] = {
	[JSON] = {"json", NULL, "print one JSON document", CLI_NOTHING, 'j'},
	{NULL, NULL, NULL, CLI_NOTHING, 0},
};

static const struct cli_row environment[] = {
	{"VGPU_LIBRARY", "the path of libvgpu.so"},
	{"VGPU_STATE", "the directory where slices are kept"},
	{"NO_COLOR", "if it is set: no colours on a terminal"},
	{NULL, NULL},
};

static const struct cli_row exits[] = {
	{"0", "nothing fails"},
	{"1", "something fails"},
	{"125", "vgpu failed: what was found cannot be printed, or this vgpu has no --json"},
	{"2", "the command line is wrong"},
	{NULL, NULL},
};

static const struct cli_row examples[] = {
	{"vgpu doctor", "the machine, and the slice that this is in"},
	{"vgpu doctor python3 train.py", "the same, and whether a slice would hold the program"},
	{NULL, NULL},
};

/* -- findings ---------------------------------------------------------------------------------- */

/* Formats a line. Paths and texts of files may have control characters, which become "?". */
__attribute__((format(printf, 1, 0))) static char *make_line(const char *format, va_list args)
{
	char *line;

	if (vasprintf(&line, format, args) < 0)
		exit(cli_fail(CLI_FAILED, "out of memory"));
	for (char *at = line; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = '?';
	return line;
}

void doctor_found(struct doctor *doctor, enum doctor_verdict verdict, const char *format, ...)
{
	struct doctor_finding *more = realloc(doctor->finding, (doctor->count + 1) * sizeof(*more));
	va_list args;

	if (!more)
		exit(cli_fail(CLI_FAILED, "out of memory"));
	doctor->finding = more;
	more += doctor->count++;
	more->check = doctor->check;
	more->verdict = verdict;
	va_start(args, format);
	more->found = make_line(format, args);
	va_end(args);
	more->advice = NULL;
}

void doctor_advise(struct doctor *doctor, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	doctor->finding[doctor->count - 1].advice = make_line(format, args);
	va_end(args);
}

const char *doctor_verdict_name(enum doctor_verdict verdict)
{
	static const char *const names[] = {"ok", "note", "warn", "fail"};

	return names[verdict];
}

bool doctor_is_limited(const struct doctor *doctor)
{
	const struct slice_env *env = &doctor->slice.env;

	if (!doctor->has_slice || doctor->slice.has_policy)
		return true;
	for (unsigned i = 0; i < VGPU_DEVICES_MAX; i++)
		if (env->memory_bytes[i] || env->cores_pct[i])
			return true;
	return false;
}

static void forget(struct doctor *doctor)
{
	for (unsigned i = 0; i < doctor->count; i++) {
		free(doctor->finding[i].found);
		free(doctor->finding[i].advice);
	}
	free(doctor->finding);
	free(doctor);
}

/* -- for people -------------------------------------------------------------------------------- */

static bool has_colours(void)
{
	const char *no = getenv("NO_COLOR"), *terminal = getenv("TERM");

	return isatty(STDOUT_FILENO) && !(no && *no) && !(terminal && !strcmp(terminal, "dumb"));
}

static void print_finding(const struct doctor_finding *finding, bool in_colours)
{
	static const char *const words[] = {"ok", "note", "warn", "FAIL"};
	static const char *const colours[] = {"32", "36", "33", "1;31"};

	if (in_colours)
		printf("\033[%sm%-4s\033[0m", colours[finding->verdict], words[finding->verdict]);
	else
		printf("%-4s", words[finding->verdict]);
	printf("  %-*s  ", NAME_COLUMNS, finding->check);
	cli_say("%s%s%s%s", finding->found, finding->advice ? ". " : "",
		finding->advice ? finding->advice : "", finding->advice ? "." : "");
}

/* -- the command ------------------------------------------------------------------------------- */

static void make_checks(struct doctor *doctor, const struct doctor_check *check, bool quiet)
{
	bool in_colours = has_colours();

	for (; check->name; check++) {
		unsigned printed = doctor->count;

		doctor->check = check->name;
		check->make(doctor);
		while (!quiet && printed < doctor->count)
			print_finding(&doctor->finding[printed++], in_colours);
		if (!quiet)
			fflush(stdout);
	}
}

static bool fails(const struct doctor *doctor)
{
	for (unsigned i = 0; i < doctor->count; i++)
		if (doctor->finding[i].verdict == DOCTOR_FAIL)
			return true;
	return false;
}

static int run(const struct cli_line *line)
{
	static const struct doctor_check *const tables[] = {
		doctor_machine, doctor_library, doctor_slice, doctor_assured, doctor_sandbox};
	struct doctor *doctor = calloc(1, sizeof(*doctor));
	bool json = line->value[JSON] != NULL;
	int status = 0;

	if (!doctor)
		return cli_fail(CLI_FAILED, "out of memory");
	doctor->command = line->count > 0 ? line->argument : NULL;
	doctor->has_slice = slice_load(NULL, &doctor->slice, &doctor->slice_fault) == 0;
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		make_checks(doctor, tables[i], json);
	if (doctor->command)
		make_checks(doctor, doctor_program, json);
	if (json)
		status = doctor_print_json(doctor);
	if (!status)
		status = cli_written(fails(doctor) ? CLI_WRONG : 0);
	forget(doctor);
	return status;
}

const struct cli_command doctor_command = {
	.name = "doctor",
	.summary = "find out what prevents slices here, and say what to do",
	.arguments = "[--] [COMMAND [ARGUMENT...]]",
	.about = "Checks the driver, the library, and the slice that this is in, if it is in one; "
		 "and whether a slice would hold COMMAND, which is not run.",
	.options = options,
	.environment = environment,
	.exits = exits,
	.examples = examples,
	.offer = CLI_COMMAND,
	.leads = true,
	.run = run,
};
