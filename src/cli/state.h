/*
 * Slices in a state directory (state_dir.h), made, held and removed.
 *
 * A slice lives while a `vgpu run` holds its lock, or a process is in its region.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "fault.h"
#include "gpus.h"
#include "policy.h"
#include "state_dir.h"

struct state {
	int fd;
	char path[STATE_PATH_MAX]; /* absolute */
};

/* A slice whose lock this process holds. */
struct state_slice {
	char name[STATE_NAME_MAX + 1];
	char policy_path[PATH_MAX];
	char region_path[PATH_MAX];
	struct policy policy;
	bool joined; /* another process made it */
	int lock;
};

/* Opens this user's state directory, and makes it if it is not there. Refused if other users could
 * write there. */
int state_open(struct state *ret_state, struct fault *fault);

/* Opens the state directory at the path, which must be there and belong to this user. */
int state_open_at(const char *path, struct state *ret_state, struct fault *fault);

enum state_taking {
	STATE_MAKE,         /* a new slice: -EEXIST, no fault, if one of that name lives */
	STATE_JOIN_OR_MAKE, /* the slice that lives, or else a new one */
	STATE_JOIN,         /* the slice that lives: -ENOENT, no fault, if there is none */
};

/* Makes the directory for gangs in a state directory, unless it is there. */
int state_make_gangs(const char *state_path, struct fault *fault);

/* Makes the directory for turns in a state directory, unless it is there. Root's directory serves
 * the slices of all users: each user makes files there, and removes none of another user. */
int state_make_turns(const char *state_path, struct fault *fault);

/* Holds the slice of that name. A new slice has the devices of `wanted`, in that order. */
int state_slice_take(const struct state *state, const char *name, enum state_taking taking,
		     const struct policy *wanted, struct state_slice *ret_slice,
		     struct fault *fault);

/* Releases the slice, and removes it if nothing else lives there. */
void state_slice_leave(const struct state *state, struct state_slice *slice);

/* Removes the slice, if nothing lives in it: 0, -EBUSY, or another negative errno, with a fault
 * that goes on from "it is not removed: ". */
int state_slice_remove(const struct state *state, const char *name, struct fault *fault);

/* Removes the slices and gangs in which nothing lives, in all state directories of this user. */
void state_sweep(const struct state *state);
void state_sweep_all(void);
