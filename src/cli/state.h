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

/* A slice that we hold. */
struct state_slice {
	char name[STATE_NAME_MAX + 1];
	char policy_path[PATH_MAX];
	char region_path[PATH_MAX];
	struct policy policy;
	bool joined; /* somebody else made it */
	int lock;
};

/* Opens it; made if need be. Refused when others could write there. */
int state_open(struct state *ret_state, struct fault *fault);

/* Opens another one, which must be there, and this user's. */
int state_open_at(const char *path, struct state *ret_state, struct fault *fault);

enum state_taking {
	STATE_MAKE,         /* a new one: -EEXIST, no fault, where one of that name lives */
	STATE_JOIN_OR_MAKE, /* the one that lives, or else a new one */
	STATE_JOIN,         /* the one that lives: -ENOENT, no fault, where there is none */
};

/* Makes the directory for gangs in a state directory, unless it is there. */
int state_make_gangs(const char *state_path, struct fault *fault);

/* The same for turns. Root's is for the slices of all users: they make files there, and remove none
 * of each other's. */
int state_make_turns(const char *state_path, struct fault *fault);

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
