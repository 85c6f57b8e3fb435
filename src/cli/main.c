/* Which subcommand, and help. */
#include "cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} commands[] = {
	{"run", run_main, "run a program in a slice of the GPU"},
	{"inspect", inspect_main, "print and check a slice's region file"},
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

int cli_fail(int status, const char *format, ...)
{
	va_list args;

	fputs("vgpu: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return status;
}

static void print_help(FILE *out)
{
	fputs("Usage: vgpu COMMAND [OPTION...] [ARGUMENT...]\n\n"
	      "Gives a program a slice of an NVIDIA GPU.\n\n"
	      "Commands:\n",
	      out);
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
	fputs("\n"
	      "  vgpu help COMMAND    what a command does, and its options\n"
	      "  vgpu --version       which vgpu this is\n",
	      out);
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static int unknown(const char *name)
{
	return cli_fail(CLI_USAGE, "there is no command \"%s\": vgpu --help lists those there are",
			name);
}

static int help(const char *name)
{
	char *argv[] = {NULL, "--help", NULL};
	const struct command *command;

	if (!name) {
		print_help(stdout);
		return 0;
	}
	command = find_command(name);
	if (!command)
		return unknown(name);
	argv[0] = (char *)command->name;
	return command->run(2, argv);
}

int main(int argc, char **argv)
{
	const struct command *command;

	if (argc < 2) {
		print_help(stderr);
		return CLI_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return help(NULL);
	if (strcmp(argv[1], "help") == 0)
		return help(argv[2]);
	if (strcmp(argv[1], "--version") == 0) {
		puts("vgpu " VGPU_VERSION);
		return 0;
	}
	command = find_command(argv[1]);
	return command ? command->run(argc - 1, argv + 1) : unknown(argv[1]);
}
