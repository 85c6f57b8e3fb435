/* Help texts, of the commands' tables. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

#define COLUMNS 80

/* Prints text from column `at` on, by words, in lines that start at column `indent`; a line feed in
 * it begins a line. */
static void print_wrapped(const char *text, size_t at, size_t indent)
{
	while (*text) {
		size_t len = strcspn(text, " \n");

		if (at > indent && at + 1 + len > COLUMNS) {
			printf("\n%*s", (int)indent, "");
			at = indent;
		} else if (at > indent) {
			putchar(' ');
			at++;
		}
		printf("%.*s", (int)len, text);
		at += len;
		text += len;
		if (*text == '\n') {
			printf("\n%*s", (int)indent, "");
			at = indent;
		}
		text += *text != '\0';
	}
	putchar('\n');
}

/* In two columns, the right one from `indent` on; below, where the left one is too long. */
static void print_row(const char *left, const char *right, size_t indent)
{
	if (strlen(left) + 4 > indent)
		printf("  %s\n%*s", left, (int)indent, "");
	else
		printf("  %-*s", (int)indent - 2, left);
	print_wrapped(right, indent, indent);
}

static void print_rows(const char *title, const struct cli_row *rows, size_t indent)
{
	if (!rows)
		return;
	printf("\n%s:\n", title);
	for (; rows->left; rows++)
		print_row(rows->left, rows->right, indent);
}

static void print_option(const struct cli_option *option, size_t indent)
{
	char left[80], letter[8] = "    ";

	if (option->letter)
		snprintf(letter, sizeof(letter), "-%c, ", option->letter);
	snprintf(left, sizeof(left), "%s--%s%s%s", letter, option->name, option->value ? " " : "",
		 option->value ? option->value : "");
	print_row(left, option->help, indent);
}

/* Command lines stay whole, so that they can be copied. */
static void print_examples(const struct cli_row *rows)
{
	if (rows)
		puts("\nExamples:");
	for (; rows && rows->left; rows++) {
		printf("  %s\n      ", rows->left);
		print_wrapped(rows->right, 6, 6);
	}
}

void cli_print_help(const struct cli_command *command)
{
	static const struct cli_option help = {"help", NULL, "this text", CLI_NOTHING, 'h'};
	const struct cli_option *option = command->options;
	size_t indent = 27;

	printf("Usage: vgpu %s [OPTION...]%s%s\n", command->name, command->arguments ? " " : "",
	       command->arguments ? command->arguments : "");
	if (command->alias)
		printf("       vgpu %s is the same\n", command->alias);
	putchar('\n');
	print_wrapped(command->about, 0, 0);
	puts("\nOptions:");
	for (; option->name; option++)
		print_option(option, indent);
	print_option(&help, indent);
	print_rows("Environment", command->environment, indent);
	print_rows("Exit status", command->exits, 8);
	print_examples(command->examples);
	printf("\nvgpu-%s(1) says more.\n", command->name);
}
