/* A command line, by a command's table. getopt_long does the reading. */
#include <getopt.h>
#include <string.h>

#include "cli.h"

/* getopt_long gives these for options, so that optopt tells them from letters. */
#define FIRST_OPTION 256

/* The command's options and --help, for getopt_long. Returns what that gives for --help. */
static int list_options(const struct cli_command *command, struct option *ret_list)
{
	int count = 0;

	for (; command->options[count].name; count++)
		ret_list[count] = (struct option){
			.name = command->options[count].name,
			.has_arg = command->options[count].value ? required_argument : no_argument,
			.val = FIRST_OPTION + count,
		};
	ret_list[count] = (struct option){.name = "help", .val = FIRST_OPTION + count};
	ret_list[count + 1] = (struct option){.name = NULL};
	return FIRST_OPTION + count;
}

static int refuse(const char *command, const struct option *list, int option, const char *last)
{
	if (option == ':')
		return cli_fail(CLI_USAGE, "%s needs a value: see vgpu %s --help", last, command);
	if (optopt >= FIRST_OPTION)
		return cli_fail(CLI_USAGE, "%s: --%s takes no value", last,
				list[optopt - FIRST_OPTION].name);
	if (optopt > 0)
		return cli_fail(CLI_USAGE, "-%c is no option of vgpu %s: see vgpu %s --help",
				optopt, command, command);
	return cli_fail(CLI_USAGE, "%s is no option of vgpu %s: see vgpu %s --help", last, command,
			command);
}

int cli_read(const struct cli_command *command, int argc, char **argv, struct cli_line *ret_line,
	     bool *ret_help)
{
	struct option list[CLI_OPTIONS_MAX + 2];
	int option, help = list_options(command, list);

	memset(ret_line, 0, sizeof(*ret_line));
	ret_line->command = command;
	opterr = 0;
	while ((option = getopt_long(argc, argv, command->leads ? "+:h" : ":h", list, NULL)) >= 0) {
		if (option == 'h' || option == help) {
			*ret_help = true;
			return 0;
		}
		if (option < FIRST_OPTION)
			return refuse(command->name, list, option, argv[optind - 1]);
		ret_line->value[option - FIRST_OPTION] = optarg ? optarg : "";
	}
	ret_line->argument = argv + optind;
	ret_line->count = argc - optind;
	if (!command->arguments && ret_line->count > 0)
		return cli_fail(CLI_USAGE, "vgpu %s takes no argument, and \"%s\" is one",
				command->name, ret_line->argument[0]);
	return 0;
}
