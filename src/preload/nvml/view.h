/* The slice as seen by a process that need not use CUDA itself, such as nvidia-smi. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "region.h"

/*
 * The memory limit and use of the GPU with that UUID, in bytes, from the region. False: there is no
 * slice, or no limit on that GPU.
 */
bool view_memory(const char *uuid, uint64_t *ret_limit, uint64_t *ret_used);

/* The living processes of the slice, and what each holds of the GPU with that UUID (NULL: figures
 * are 0). Returns how many there are; 0 also if there is no slice. */
unsigned view_processes(const char *uuid, struct region_process ret_processes[VGPU_SLOTS_MAX]);

void view_forked(void); /* in a forked child: the next query opens the region again */
