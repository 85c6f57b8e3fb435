/* Which commands there are, in the order of the help text. */
#include "commands.h"

#include <string.h>

const struct cli_command *const cli_commands[] = {
	&run_command,     &ps_command,     &top_command,    &set_command,
	&pause_command,   &resume_command, &rm_command,     &trace_command,
	&inspect_command, &cdi_command,    &doctor_command, NULL,
};

const struct cli_command *cli_find(const char *name)
{
	for (const struct cli_command *const *command = cli_commands; *command; command++)
		if (strcmp((*command)->name, name) == 0 ||
		    ((*command)->alias && strcmp((*command)->alias, name) == 0))
			return *command;
	return NULL;
}
