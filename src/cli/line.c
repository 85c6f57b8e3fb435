/* A command line, by a command's table. getopt_long does the reading. */
#include <getopt.h>
#include <stdio.h>
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

#define LETTERS_MAX (2 + 1 + 2 * CLI_OPTIONS_MAX + 1) /* "+:", "h", "m:" each, NUL */

/* The letters of the options, for getopt_long. */
static void list_letters(const struct cli_command *command, char ret_letters[LETTERS_MAX])
{
	char *at = ret_letters + sprintf(ret_letters, "%s:h", command->leads ? "+" : "");

	for (const struct cli_option *option = command->options; option->name; option++) {
		if (option->letter)
			*at++ = option->letter;
		if (option->letter && option->value)
			*at++ = ':';
	}
	*at = '\0';
}

/* The place in the command's table of what getopt_long gives: a letter, or FIRST_OPTION and more.
 */
static int place_of(const struct cli_command *command, int option)
{
	if (option >= FIRST_OPTION)
		return option - FIRST_OPTION;
	for (int i = 0; command->options[i].name; i++)
		if (command->options[i].letter == option)
			return i;
	return -1;
}

/* last: the argument that was read last; optopt has the option, or 0 for an unknown word. */
static int refuse(const struct cli_command *command, int option, const char *last)
{
	int place = place_of(command, optopt);

	if (option == ':')
		return cli_fail(CLI_USAGE, "--%s needs a value: see vgpu %s --help",
				command->options[place].name, command->name);
	if (optopt >= FIRST_OPTION)
		return cli_fail(CLI_USAGE, "%s: --%s takes no value", last,
				command->options[place].name ? command->options[place].name
							     : "help");
	if (optopt > 0)
		return cli_fail(CLI_USAGE, "-%c is no option of vgpu %s: see vgpu %s --help",
				optopt, command->name, command->name);
	return cli_fail(CLI_USAGE, "%s is no option of vgpu %s: see vgpu %s --help", last,
			command->name, command->name);
}

int cli_read(const struct cli_command *command, int argc, char **argv, struct cli_line *ret_line,
	     bool *ret_help)
{
	struct option list[CLI_OPTIONS_MAX + 2];
	int option, help = list_options(command, list);
	char letters[LETTERS_MAX];

	memset(ret_line, 0, sizeof(*ret_line));
	ret_line->command = command;
	list_letters(command, letters);
	opterr = 0;
	while ((option = getopt_long(argc, argv, letters, list, NULL)) >= 0) {
		if (option == 'h' || option == help) {
			*ret_help = true;
			return 0;
		}
		if (option == '?' || option == ':')
			return refuse(command, option, argv[optind - 1]);
		ret_line->value[place_of(command, option)] = optarg ? optarg : "";
	}
	ret_line->argument = argv + optind;
	ret_line->count = argc - optind;
	if (!command->arguments && ret_line->count > 0)
		return cli_fail(CLI_USAGE, "vgpu %s takes no argument, and \"%s\" is one",
				command->name, ret_line->argument[0]);
	return 0;
}
