/* What vgpu ps and vgpu top print of a look at the machine. */
#pragma once

#include <stdbool.h>

#include "overview.h"

struct table_paper;

/* For people: the GPUs, the slices, their processes; with all, also who is in no slice, and all
 * GPUs. */
void ps_print_text(const struct overview *overview, bool all, const struct table_paper *paper);

/* As one JSON document on stdout: 0, or what to exit with after a line on stderr. */
int ps_print_json(const struct overview *overview, bool all);

/* The same on one line, with the time of the look. */
int ps_print_json_line(const struct overview *overview, bool all);

/* Words of both commands, into buf, which is returned. */

/* The GPU's index, or the beginning of its UUID. */
char *ps_gpu_word(const struct overview *overview, const struct overview_device *device, char *buf,
		  size_t len);
/* "29/30 %": what it takes of the GPU's time, and may take; "~29 %" by NVML, without a limit. */
char *ps_cores_word(const struct overview_slice *slice, const struct overview_device *device,
		    char *buf, size_t len);
/* "62 % limit", "48 % turns": for which part of the time launches were held back, and by what, the
 * larger of the two; "-" where it is not known. */
char *ps_waits_word(const struct overview_device *device, char *buf, size_t len);
/* A sentence without its full stop, if the GPU's slices are assured more than 100 % in all, or
 * hold more than its memory; else "". */
char *ps_assured_word(const struct overview *overview, const struct usage_gpu *gpu, char *buf,
		      size_t len);
char *ps_pressure_word(const struct overview *overview, const struct usage_gpu *gpu, char *buf,
		       size_t len);
/* Whether somebody might want to know how long slices wait: one has a limit, or had turns. */
bool ps_has_waits(const struct overview *overview);
/* "2 running, 1 dead", "blocked", "leftover" … */
char *ps_state_word(const struct overview_slice *slice, char *buf, size_t len);
/* A command line without its program's directory. */
const char *ps_command_word(const char *command);
/* "running", "dead, may be held" … */
const char *ps_process_state(const struct overview_process *process);
/* "1234 python3 train.py": a pid of another pid namespace in brackets. */
char *ps_process_word(const struct overview_process *process, char *buf, size_t len);

/* How much of its limit the slice holds, percent; -1 without one. */
int ps_full_pct(const struct overview_device *device);
/* Whether somebody who looks after the machine should see the slice's state. */
bool ps_needs_eyes(const struct overview_slice *slice);
