/* Prints a look at the machine, for vgpu ps and vgpu top. */
#pragma once

#include <stdbool.h>

#include "overview.h"

struct table_paper;

/* Prints tables of the GPUs, the slices and their processes, for people. all: also GPUs that no
 * slice uses, and processes that are in no slice. */
void ps_print_text(const struct overview *overview, bool all, const struct table_paper *paper);

/* Print the look on stdout as one JSON document; ps_print_json_line prints it on one line, with
 * the time of the look. Return 0, or the exit status after a line on stderr. */
int ps_print_json(const struct overview *overview, bool all);
int ps_print_json_line(const struct overview *overview, bool all);

/* The functions ps_…_word write a word or sentence for people into buf of len bytes, and return
 * buf. */

/* NVML's index of the GPU, or the beginning of its UUID if the index is not known. */
char *ps_gpu_word(const struct overview *overview, const struct overview_device *device, char *buf,
		  size_t len);
/* The slice's share of the GPU's time and its compute quota, such as "29/30 %". "~29 %" is
 * NVML's figure, for a slice without a quota. */
char *ps_cores_word(const struct overview_slice *slice, const struct overview_device *device,
		    char *buf, size_t len);
/* The part of the time for which launches were held back, with the reason: "62 % limit" or
 * "48 % turns", the larger of the two; "-": not known. */
char *ps_waits_word(const struct overview_device *device, char *buf, size_t len);
/* Sentences without a full stop. ps_assured_word: the GPU's slices are assured more than 100 %
 * in all. ps_pressure_word: they hold more than the GPU's memory. "": that is not the case. */
char *ps_assured_word(const struct overview *overview, const struct usage_gpu *gpu, char *buf,
		      size_t len);
char *ps_pressure_word(const struct overview *overview, const struct usage_gpu *gpu, char *buf,
		       size_t len);
/* Whether the column WAITS is shown: some slice has a compute quota or has had turns. */
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
