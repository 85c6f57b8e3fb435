/*
 * The program `vgpu`. A subcommand is a function of main's kind, in a file of its own, with a row
 * in main.c's table; argv[0] is its name. What goes wrong is one line on stderr, with the cause and
 * the cure.
 */
#pragma once

/* What it exits with; `vgpu run` otherwise with the command's own, or 128 + the signal's number. */
enum cli_status {
	CLI_WRONG = 1, /* vgpu inspect: something is wrong with the region */
	CLI_USAGE = 2,
	CLI_FAILED = 125,
	CLI_NOT_EXECUTABLE = 126,
	CLI_NOT_FOUND = 127,
};

int inspect_main(int argc, char **argv);
int run_main(int argc, char **argv);

/* Prints "vgpu: …" and returns status, so that it can stand in a return. */
__attribute__((format(printf, 2, 3))) int cli_fail(int status, const char *format, ...);
