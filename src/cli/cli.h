/*
 * The program `vgpu`. A subcommand is a file of its own with a struct cli_command, which has a row
 * in commands.c. Its command line, its --help, the completions and the options in its manual page
 * all come from there. An error is one line on stderr, with the cause and the cure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The exit statuses of the program. vgpu run also exits with the command's own status, or with
 * 128 plus the number of the signal that killed the command. */
enum cli_status {
	CLI_WRONG = 1, /* a check has failed */
	CLI_USAGE = 2,
	CLI_FAILED = 125,
	CLI_NOT_EXECUTABLE = 126,
	CLI_NOT_FOUND = 127,
};

/* The completions that a shell offers for an option's value or an argument. */
enum cli_offer {
	CLI_NOTHING,
	CLI_SLICE,
	CLI_SLICE_OR_FILE,
	CLI_GPUS, /* a list of GPUs, with commas between them */
	CLI_COMMAND,
	CLI_NUMBER,
	CLI_GANG, /* a word on gangs */
};

struct cli_option {
	const char *name;  /* as it comes after the two dashes; each has one, NULL ends the list */
	const char *value; /* what it takes, in capitals; NULL: it takes nothing */
	const char *help;
	enum cli_offer offer;
	char letter; /* as it comes after one dash, 0: none. "h" is each command's --help */
};

/* Two columns of a help text: a variable, or an exit status, and what it means. */
struct cli_row {
	const char *left; /* NULL ends the list */
	const char *right;
};

struct cli_line;

struct cli_command {
	const char *name;
	const char *alias;     /* another name of it, or NULL */
	const char *summary;   /* a few words, for lists of commands */
	const char *arguments; /* of the synopsis: "[--] COMMAND [ARGUMENT...]"; NULL: none */
	const char *about;     /* what it does, in sentences */
	const struct cli_option *options;
	const struct cli_row *environment, *exits; /* NULL: none */
	const struct cli_row *examples; /* a command line, and what it does; NULL: none */
	enum cli_offer offer;           /* for its arguments */
	bool leads; /* the first argument begins another command line, with options of its own */
	/* Returns what to exit with. */
	int (*run)(const struct cli_line *line);
};

#define CLI_OPTIONS_MAX 16

/* A command line that has the command's form. */
struct cli_line {
	const struct cli_command *command;
	/* By the option's place in the command's table: what was given, "" where the option takes
	 * nothing; NULL: it was not given. Given twice, the last counts. */
	const char *value[CLI_OPTIONS_MAX];
	char **argument; /* ends with NULL */
	int count;
};

extern const struct cli_command *const cli_commands[]; /* ends with NULL */

const struct cli_command *cli_find(const char *name); /* or alias; NULL: there is none */

/* Reads a command line, argv[0] of which is the command's name: 0, or what to exit with after a
 * line on stderr. Letters may be bundled (-aq), and their values attached (-m8G). --help and -h are
 * each command's: *ret_help is set then, and nothing after them is read. */
int cli_read(const struct cli_command *command, int argc, char **argv, struct cli_line *ret_line,
	     bool *ret_help);

/* A command's --help, and that of the program, 80 columns wide at most. */
void cli_print_help(const struct cli_command *command);

/* Prints "vgpu: …" on stderr, as one line that is safe for a terminal (escape.h), and returns
 * status, so that it can stand in a return. A warning has the status 0. */
__attribute__((format(printf, 2, 3))) int cli_fail(int status, const char *format, ...);

/* Prints a line on stdout, escaped. */
__attribute__((format(printf, 1, 2))) void cli_say(const char *format, ...);

/* Flushes stdout. Returns status; if stdout cannot be written, CLI_FAILED after a line on
 * stderr. */
int cli_written(int status);
