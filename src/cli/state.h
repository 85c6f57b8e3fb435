/*
 * The state directory: a directory for each slice that `vgpu run` made, of that name, with
 *
 *   policy/   what the slice may have (slice/policy.h); there whole or not at all
 *   region    what it has (include/vgpu_region.h)
 *   region.trace.N   what the process in slot N had its pacer write down (region/trace_file.h)
 *   lock      flock'ed shared by every `vgpu run` of the slice, exclusively by whoever makes or
 *             removes it
 *
 * and a directory `gangs`, with a file for each gang of several slices (region/gang_file.h).
 *
 * A slice lives while a `vgpu run` holds its lock, or a process is in its region.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "fault.h"
#include "gpus.h"
#include "policy.h"

#define STATE_ROOT_DIR "/run/vgpu" /* root's */
#define STATE_POLICY   "policy"
#define STATE_REGION   "region"
#define STATE_LOCK     "lock"
#define STATE_GANGS    "gangs"

#define STATE_NAME_MAX 63
#define STATE_OWN_MAX  3
#define STATE_PATH_MAX (PATH_MAX - STATE_NAME_MAX - 64) /* what goes below it still is a path */

struct state {
	int fd;
	char path[STATE_PATH_MAX]; /* absolute */
};

/* A slice that we hold. */
struct state_slice {
	char name[STATE_NAME_MAX + 1];
	char policy_path[PATH_MAX];
	char region_path[PATH_MAX];
	struct policy policy;
	bool joined; /* somebody else made it */
	int lock;
};

/* Where this user's is: what VGPU_STATE names, else STATE_ROOT_DIR for root, else a directory of
 * the user's own. False: its path is too long, and cut off. */
bool state_path(char ret_path[STATE_PATH_MAX]);

/* Every directory where this user's slices may be, state_path's first: with or without
 * XDG_RUNTIME_DIR, as from ssh or cron. Others than the first are this user's, and there. How many
 * there are: 0 where the first one's path is too long. */
unsigned state_own_paths(char ret_paths[STATE_OWN_MAX][STATE_PATH_MAX]);

/* Opens it; made if need be. Refused when others could write there. */
int state_open(struct state *ret_state, struct fault *fault);

/* Opens another one, which must be there, and this user's. */
int state_open_at(const char *path, struct state *ret_state, struct fault *fault);

/* Whether it may name a slice: 1 to 63 of A-Z a-z 0-9 . _ - and neither "." nor "-" at the start;
 * but not STATE_GANGS. */
bool state_name_is_good(const char *name);

enum state_taking {
	STATE_MAKE,         /* a new one: -EEXIST, no fault, where one of that name lives */
	STATE_JOIN_OR_MAKE, /* the one that lives, or else a new one */
	STATE_JOIN,         /* the one that lives: -ENOENT, no fault, where there is none */
};

/* Makes the directory for gangs in a state directory, unless it is there. */
int state_make_gangs(const char *state_path, struct fault *fault);

/* Holds the slice of that name. A new one has the devices in wanted, in that order. */
int state_slice_take(const struct state *state, const char *name, enum state_taking taking,
		     const struct policy *wanted, struct state_slice *ret_slice,
		     struct fault *fault);

/* Lets go of it, and removes it if nothing else lives there. */
void state_slice_leave(const struct state *state, struct state_slice *slice);

/* Removes the slice, if nothing lives in it: 0, -EBUSY, or another negative errno, with a fault
 * that goes on from "it is not removed: ". */
int state_slice_remove(const struct state *state, const char *name, struct fault *fault);

/* Removes the slices and gangs in which nothing lives; in all of this user's state directories. */
void state_sweep(const struct state *state);
void state_sweep_all(void);
