/* The commands, each of the file of its name. */
#pragma once

#include "cli.h"

extern const struct cli_command doctor_command;
extern const struct cli_command inspect_command;
extern const struct cli_command run_command;
