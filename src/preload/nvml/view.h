/* The slice as it looks to a process that need not use CUDA itself: nvidia-smi, monitors. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "region.h"

/*
 * The memory limit and use of the GPU with that UUID, in bytes, by looking into the region. False:
 * no slice, or no limit on that GPU.
 */
bool view_memory(const char *uuid, uint64_t *ret_limit, uint64_t *ret_used);

/* The living processes of the slice, and what each holds of the GPU with that UUID (NULL: of none);
 * how many there are. 0 too where there is no slice. */
unsigned view_processes(const char *uuid, struct region_process ret_processes[VGPU_SLOTS_MAX]);

void view_forget(void); /* in a forked child: the next question opens its own */
