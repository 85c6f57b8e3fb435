/* Which subcommand, and help. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "gpus.h"

static void print_help(FILE *out)
{
	fputs("Usage: vgpu COMMAND [OPTION...] [ARGUMENT...]\n\n"
	      "Cuts an NVIDIA GPU into slices, and runs programs in them.\n\n"
	      "Commands:\n",
	      out);
	for (const struct cli_command *const *command = cli_commands; *command; command++) {
		char names[32];

		snprintf(names, sizeof(names), "%s%s%s", (*command)->name,
			 (*command)->alias ? ", " : "", (*command)->alias ? (*command)->alias : "");
		fprintf(out, "  %-10s %s\n", names, (*command)->summary);
	}
	fputs("\n"
	      "  vgpu help COMMAND      what a command does, and its options\n"
	      "  vgpu -h, --help        this text\n"
	      "  vgpu -V, --version     which vgpu this is\n"
	      "\n"
	      "Exit status: 0 on success; 2 if the command line is wrong; 125 if vgpu failed;\n"
	      "others are in each command's --help.\n"
	      "\n"
	      "Example:\n"
	      "  vgpu run --memory 8G --cores 30 python3 train.py\n"
	      "\n"
	      "vgpu(1) says more.\n",
	      out);
}

static int unknown(const char *name)
{
	return cli_fail(CLI_USAGE, "there is no command \"%s\": vgpu --help lists those there are",
			name);
}

static int help(const char *name)
{
	const struct cli_command *command = name ? cli_find(name) : NULL;

	if (name && !command)
		return unknown(name);
	if (command)
		cli_print_help(command);
	else
		print_help(stdout);
	return cli_written(0);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
	struct cli_line line;
	bool wants_help = false;
	int status = cli_read(command, argc, argv, &line, &wants_help);

	if (status)
		return status;
	return wants_help ? help(command->name) : command->run(&line);
}

/* For the completions, and no command of its own: GPUs by index, a line each; nothing where there
 * is no driver. */
static int complete(const char *what)
{
	struct gpus gpus;

	if (!what || strcmp(what, "gpus") != 0)
		return CLI_USAGE;
	if (gpus_find(&gpus, NULL))
		return 0;
	for (unsigned i = 0; i < gpus.count; i++)
		printf("%u\n", gpus.gpu[i].index);
	return cli_written(0);
}

int main(int argc, char **argv)
{
	const struct cli_command *command;

	if (argc < 2) {
		print_help(stderr);
		return CLI_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return help(NULL);
	if (strcmp(argv[1], "help") == 0)
		return help(argv[2]);
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
		puts("vgpu " VGPU_VERSION);
		return cli_written(0);
	}
	if (strcmp(argv[1], "__complete") == 0)
		return complete(argv[2]);
	command = cli_find(argv[1]);
	return command ? run(command, argc - 1, argv + 1) : unknown(argv[1]);
}
