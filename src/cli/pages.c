/*
 * Prints the parts of the manual pages, and the completions, that are made from the commands'
 * tables. This program is not installed: docs/pages.sh runs it, and the results are in the
 * repository.
 *
 *     vgpu_pages PART COMMAND   a part of the command's page, in mdoc: synopsis, options,
 *                               environment, exits or examples
 *     vgpu_pages commands       of vgpu(1)
 *     vgpu_pages naming         of each page with a NAME
 *     vgpu_pages outcomes       of each page of a command that changes slices
 *     vgpu_pages bash | zsh     a completion
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const struct cli_option help = {"help", NULL, "print a summary", CLI_NOTHING, 'h'};

/* -- mdoc -------------------------------------------------------------------------------------- */

/* Prints the text as a sentence, with a capital and a full stop. */
static void print_sentence(const char *text)
{
	printf("%c%s.\n", toupper((unsigned char)text[0]), text + 1);
}

static void print_option_names(const struct cli_option *option, bool with_letter)
{
	if (option->letter && with_letter)
		printf("Fl %c , ", option->letter);
	printf("Fl -%s", option->name);
	if (option->value)
		printf(" Ar %s", option->value);
	putchar('\n');
}

static void print_synopsis(const struct cli_command *command)
{
	printf(".Nm vgpu %s\n", command->name);
	for (const struct cli_option *option = command->options; option->name; option++) {
		fputs(".Op ", stdout);
		print_option_names(option, false);
	}
	if (command->arguments)
		printf(".Ar %s\n", command->arguments);
}

static void print_mdoc_option(const struct cli_option *option)
{
	fputs(".It ", stdout);
	print_option_names(option, true);
	print_sentence(option->help);
}

static void print_options(const struct cli_command *command)
{
	puts(".Bl -tag -width Ds");
	for (const struct cli_option *option = command->options; option->name; option++)
		print_mdoc_option(option);
	print_mdoc_option(&help);
	puts(".El");
}

static void print_rows(const struct cli_row *rows, const char *macro)
{
	puts(".Bl -tag -width Ds");
	for (; rows && rows->left; rows++) {
		printf(".It %s%s\n", macro, rows->left);
		print_sentence(rows->right);
	}
	puts(".El");
}

static void print_environment(const struct cli_command *command)
{
	print_rows(command->environment, "Ev ");
}

static void print_exits(const struct cli_command *command)
{
	print_rows(command->exits, "");
}

static void print_examples(const struct cli_command *command)
{
	for (const struct cli_row *row = command->examples; row && row->left; row++) {
		printf("%c%s:\n.Pp\n.Dl $ %s\n", toupper((unsigned char)row->right[0]),
		       row->right + 1, row->left);
		if (row[1].left)
			puts(".Pp");
	}
}

static void print_commands(void)
{
	puts(".Bl -tag -width Ds");
	for (const struct cli_command *const *command = cli_commands; *command; command++) {
		printf(".It Cm %s", (*command)->name);
		if ((*command)->alias)
			printf(" , %s", (*command)->alias);
		putchar('\n');
		print_sentence((*command)->summary);
		printf("See\n.Xr vgpu-%s 1 .\n", (*command)->name);
	}
	puts(".El");
}

/* How a slice is named on a command line (slices_find): the same in each page. */
static void print_naming(void)
{
	puts(".Ar NAME\n"
	     "is a slice's name; the beginning of one slice's name;\n"
	     ".Ar USER Ns / Ns Ar NAME ,\n"
	     "where\n"
	     ".Ar USER\n"
	     "is the name or number of the slice's owner; or the path of a region file, with a\n"
	     ".Ql / .\n"
	     "A container in a HAMi cluster is a slice whose name is its pod's UID, an\n"
	     "underscore and its own name.\n"
	     "If several slices have the name, the caller's own is meant, except for root.\n"
	     "If the name still means several slices, the command fails, and lists what to\n"
	     "write instead.");
}

/* The JSON of the commands that change slices (targets_json.c): the same in each page. */
static void print_outcomes(void)
{
	puts("An object with the member\n"
	     ".Cm slices :\n"
	     "a list of objects, one for each slice.\n"
	     "Members may be added in later versions; those that are here stay.\n"
	     ".Bl -tag -width Ds\n"
	     ".It Cm name , kind , region , owner_uid , user\n"
	     "As in\n"
	     ".Xr vgpu-ps 1 .\n"
	     "Where a\n"
	     ".Ar NAME\n"
	     "is of no slice, or of several, it is\n"
	     ".Cm name ,\n"
	     "and the others are null.\n"
	     ".It Cm done\n"
	     "Whether the slice has the state that the command asks for.\n"
	     ".It Cm error\n"
	     "Why the slice does not have it, or null; standard error has the same line.\n"
	     ".It Cm changed\n"
	     "Whether this command changed it.\n"
	     ".It Cm processes\n"
	     "How many processes were paused, resumed or ended.\n"
	     ".El");
}

/* -- bash -------------------------------------------------------------------------------------- */

static const char *bash_offer(enum cli_offer offer)
{
	static const char *const offers[] = {
		[CLI_NOTHING] = ":",
		[CLI_SLICE] = "_vgpu_slices",
		[CLI_SLICE_OR_FILE] = "_vgpu_slices_and_files",
		[CLI_GPUS] = "_vgpu_gpus",
		[CLI_COMMAND] = "_vgpu_command",
		[CLI_NUMBER] = ":",
		[CLI_GANG] = "_vgpu_words 'yes no found'",
	};

	return offers[offer];
}

static void print_bash_command(const struct cli_command *command)
{
	printf("    %s%s%s)\n        case $before in\n", command->name, command->alias ? " | " : "",
	       command->alias ? command->alias : "");
	for (const struct cli_option *option = command->options; option->name; option++) {
		if (!option->value)
			continue;
		printf("        --%s", option->name);
		if (option->letter)
			printf(" | -%c", option->letter);
		printf(") %s; return ;;\n", bash_offer(option->offer));
	}
	puts("        esac");
	printf("        [[ $word != -* ]] || { _vgpu_words '");
	for (const struct cli_option *option = command->options; option->name; option++)
		printf("--%s ", option->name);
	printf("--help'; return; }\n        %s\n        ;;\n", bash_offer(command->offer));
}

/* The options without a value of the commands that lead to a command line. */
static void print_bash_flags(void)
{
	for (const struct cli_command *const *command = cli_commands; *command; command++)
		for (const struct cli_option *option = (*command)->options;
		     (*command)->leads && option->name; option++) {
			if (option->value)
				continue;
			printf(" | --%s", option->name);
			if (option->letter)
				printf(" | -%c", option->letter);
		}
}

/* Prints the functions that complete words other than options. */
static void print_bash_helpers(void)
{
	puts("# bash completion for vgpu, made from its commands' tables by `make docs`.\n"
	     "# shellcheck shell=bash disable=SC2207 # what is offered has no blanks\n"
	     "_vgpu_words() {\n"
	     "    COMPREPLY=($(compgen -W \"$1\" -- \"$word\"))\n"
	     "}\n"
	     "\n"
	     "# Tenants may have chosen names: none gets into a command line that means something "
	     "to a shell,\n"
	     "# and compgen -W would expand it.\n"
	     "_vgpu_slices() {\n"
	     "    local name\n"
	     "    while IFS= read -r name; do\n"
	     "        [[ $name == \"$word\"* && $name != *[!A-Za-z0-9._/-]* ]] && "
	     "COMPREPLY+=(\"$name\")\n"
	     "    done < <(vgpu ps --quiet 2>/dev/null)\n"
	     "}\n"
	     "\n"
	     "_vgpu_slices_and_files() {\n"
	     "    _vgpu_slices\n"
	     "    compopt -o filenames 2>/dev/null\n"
	     "    COMPREPLY+=($(compgen -f -- \"$word\"))\n"
	     "}\n"
	     "\n"
	     "# A list of GPUs: the last entry is completed.\n"
	     "_vgpu_gpus() {\n"
	     "    local list='' gpu\n"
	     "    [[ $word != *,* ]] || list=${word%,*},\n"
	     "    for gpu in $(vgpu __complete gpus 2>/dev/null) all; do\n"
	     "        [[ $gpu == all && -n $list ]] || [[ ,$list == *,\"$gpu\",* ]] ||\n"
	     "            [[ $list$gpu != \"$word\"* ]] || COMPREPLY+=(\"$list$gpu\")\n"
	     "    done\n"
	     "}\n"
	     "\n"
	     "# What follows an option that leads to a command line: that line's own completion.\n"
	     "_vgpu_command() {\n"
	     "    local first=2\n"
	     "    while [[ $first -lt $COMP_CWORD && ${COMP_WORDS[first]} == -* ]]; do\n"
	     "        case ${COMP_WORDS[first]} in\n"
	     "        --) first=$((first + 1)) && break ;;");
	fputs("        --*=* | -[!-]?* | --help | -h", stdout);
	print_bash_flags();
	puts(") first=$((first + 1)) ;;\n"
	     "        *) first=$((first + 2)) ;;\n"
	     "        esac\n"
	     "    done\n"
	     "    if declare -F _command_offset >/dev/null; then\n"
	     "        _command_offset \"$first\"\n"
	     "    else\n"
	     "        COMPREPLY=($(compgen -c -f -- \"$word\"))\n"
	     "    fi\n"
	     "}\n");
}

static void print_bash(void)
{
	print_bash_helpers();
	puts("_vgpu() {\n"
	     "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
	     "    COMPREPLY=()\n"
	     "    if [[ $COMP_CWORD -eq 1 || ($COMP_CWORD -eq 2 && $before == help) ]]; then");
	printf("        _vgpu_words '");
	for (const struct cli_command *const *command = cli_commands; *command; command++)
		printf("%s %s%s", (*command)->name, (*command)->alias ? (*command)->alias : "",
		       (*command)->alias ? " " : "");
	puts("help --help --version'\n"
	     "        return\n"
	     "    fi\n"
	     "    case ${COMP_WORDS[1]} in");
	for (const struct cli_command *const *command = cli_commands; *command; command++)
		print_bash_command(*command);
	puts("    esac\n"
	     "}\n"
	     "complete -F _vgpu vgpu");
}

/* -- zsh --------------------------------------------------------------------------------------- */

static const char *zsh_offer(enum cli_offer offer)
{
	static const char *const offers[] = {
		[CLI_NOTHING] = " ",
		[CLI_SLICE] = "_vgpu_slices",
		[CLI_SLICE_OR_FILE] = "_vgpu_slices_and_files",
		[CLI_GPUS] = "_vgpu_gpus",
		[CLI_COMMAND] = "_default",
		[CLI_NUMBER] = " ",
		[CLI_GANG] = "(yes no found)",
	};

	return offers[offer];
}

/* Prints a text for use in single quotes, and within brackets or after a colon. */
static void print_zsh_text(const char *text)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputs("'\\''", stdout);
		else if (strchr("[]:\\", *text))
			printf("\\%c", *text);
		else
			putchar(*text);
	}
}

/* '(-m --memory)'{-m+,--memory=}'[what it is]:SIZE:offer' */
static void print_zsh_option(const struct cli_option *option)
{
	const char *equals = option->value ? "=" : "";

	if (option->letter)
		printf("            '(-%c --%s)'{-%c%s,--%s%s}'[", option->letter, option->name,
		       option->letter, option->value ? "+" : "", option->name, equals);
	else
		printf("            '--%s%s[", option->name, equals);
	print_zsh_text(option->help);
	putchar(']');
	if (option->value) {
		putchar(':');
		print_zsh_text(option->value);
		printf(":%s", zsh_offer(option->offer));
	}
	putchar('\'');
}

static void print_zsh_command(const struct cli_command *command)
{
	printf("    %s%s%s)\n        _arguments -s -S \\\n", command->name,
	       command->alias ? "|" : "", command->alias ? command->alias : "");
	for (const struct cli_option *option = command->options; option->name; option++) {
		print_zsh_option(option);
		puts(" \\");
	}
	print_zsh_option(&help);
	if (command->leads)
		fputs(" \\\n            '(-)1:command:_command_names -e' '*::arguments:_normal'",
		      stdout);
	else if (command->arguments)
		printf(" \\\n            '*:argument:%s'", zsh_offer(command->offer));
	puts("\n        ;;");
}

static void print_zsh(void)
{
	puts("#compdef vgpu\n"
	     "# zsh completion for vgpu, made from its commands' tables by `make docs`.\n"
	     "_vgpu_slices() {\n"
	     "    local -a names\n"
	     "    names=(${(f)\"$(vgpu ps --quiet 2>/dev/null)\"})\n"
	     "    compadd -a names\n"
	     "}\n"
	     "\n"
	     "_vgpu_slices_and_files() {\n"
	     "    _vgpu_slices\n"
	     "    _files\n"
	     "}\n"
	     "\n"
	     "_vgpu_gpus() {\n"
	     "    local -a gpus\n"
	     "    gpus=(${(f)\"$(vgpu __complete gpus 2>/dev/null)\"} all)\n"
	     "    _sequence compadd -a gpus\n"
	     "}\n"
	     "\n"
	     "_vgpu() {\n"
	     "    local -a commands\n"
	     "    commands=(");
	for (const struct cli_command *const *command = cli_commands; *command; command++) {
		printf("        '%s:", (*command)->name);
		print_zsh_text((*command)->summary);
		puts("'");
		if ((*command)->alias)
			printf("        '%s:the same as %s'\n", (*command)->alias,
			       (*command)->name);
	}
	puts("        'help:what a command does, and its options'\n"
	     "    )\n"
	     "    if ((CURRENT == 2)) || [[ CURRENT -eq 3 && $words[2] == help ]]; then\n"
	     "        _describe command commands\n"
	     "        return\n"
	     "    fi\n"
	     "    local command=$words[2]\n"
	     "    shift words\n"
	     "    ((CURRENT--))\n"
	     "    case $command in");
	for (const struct cli_command *const *command = cli_commands; *command; command++)
		print_zsh_command(*command);
	puts("    esac\n"
	     "}\n"
	     "_vgpu \"$@\"");
}

/* -- which ------------------------------------------------------------------------------------- */

static int print_part(const char *part, const char *name)
{
	static const struct {
		const char *name;
		void (*print)(const struct cli_command *command);
	} parts[] = {
		{"synopsis", print_synopsis},       {"options", print_options},
		{"environment", print_environment}, {"exits", print_exits},
		{"examples", print_examples},
	};
	const struct cli_command *command = cli_find(name);

	for (size_t i = 0; command && i < sizeof(parts) / sizeof(parts[0]); i++)
		if (strcmp(parts[i].name, part) == 0) {
			parts[i].print(command);
			return 0;
		}
	fprintf(stderr, "vgpu_pages: no part \"%s\" of \"%s\"\n", part, name);
	return CLI_USAGE;
}

int main(int argc, char **argv)
{
	if (argc == 3)
		return print_part(argv[1], argv[2]);
	if (argc == 2 && strcmp(argv[1], "commands") == 0)
		print_commands();
	else if (argc == 2 && strcmp(argv[1], "naming") == 0)
		print_naming();
	else if (argc == 2 && strcmp(argv[1], "outcomes") == 0)
		print_outcomes();
	else if (argc == 2 && strcmp(argv[1], "bash") == 0)
		print_bash();
	else if (argc == 2 && strcmp(argv[1], "zsh") == 0)
		print_zsh();
	else
		return CLI_USAGE;
	return 0;
}
