/* The commands, each of the file of its name. */
#pragma once

#include "cli.h"

extern const struct cli_command cdi_command;
extern const struct cli_command doctor_command;
extern const struct cli_command inspect_command;
extern const struct cli_command pause_command;
extern const struct cli_command ps_command;
extern const struct cli_command resume_command;
extern const struct cli_command rm_command;
extern const struct cli_command run_command;
extern const struct cli_command set_command;
extern const struct cli_command top_command;
extern const struct cli_command trace_command;
