/*
 * The state directory: a directory for each slice that `vgpu run` made, of that name, with
 *
 *   policy/   the limits of the slice (slice/policy.h); there whole or not at all
 *   region    the region of the slice (include/vgpu_region.h)
 *   region.trace.N   the trace of the process in slot N (trace/trace_file.h)
 *   lock      flock'ed shared by every `vgpu run` of the slice, exclusively by a process that makes
 *             or removes the slice
 *
 * and two directories: `gangs`, with a file for each gang of several slices (region/gang_file.h),
 * and `turns`, with a file for each GPU (turn/turn_file.h).
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

#define STATE_ROOT_DIR "/run/vgpu" /* root's */
#define STATE_POLICY   "policy"
#define STATE_REGION   "region"
#define STATE_LOCK     "lock"
#define STATE_GANGS    "gangs"
#define STATE_TURNS    "turns"

#define STATE_NAME_MAX 63
#define STATE_OWN_MAX  3
#define STATE_PATH_MAX (PATH_MAX - STATE_NAME_MAX - 64) /* paths below it fit PATH_MAX */

/* The path of this user's state directory: the one that VGPU_STATE names, else STATE_ROOT_DIR for
 * root, else a directory of the user's own. False: the path is too long, and cut off. */
bool state_path(char ret_path[STATE_PATH_MAX]);

/* Every directory where this user's slices may be, state_path's first: with or without
 * XDG_RUNTIME_DIR, as from ssh or cron. Others than the first are this user's, and there. How many
 * there are: 0 where the first one's path is too long. */
unsigned state_own_paths(char ret_paths[STATE_OWN_MAX][STATE_PATH_MAX]);

/* Whether it may name a slice: 1 to 63 of A-Z a-z 0-9 . _ - and neither "." nor "-" at the start;
 * but not STATE_GANGS or STATE_TURNS. */
bool state_name_is_good(const char *name);
