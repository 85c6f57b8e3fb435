/* Inside src/overview/: functions that the files which make an overview share. */
#pragma once

#include "overview.h"

/* Reads the region under guard (guard.h): 0, or a negative errno with a fault. */
int overview_see(const char *path, struct sight *ret_sight, struct fault *fault);

/* Whether the slice itself counts the GPU time that it uses. A slice that may use all of it while
 * no other slice wants it does not. */
bool overview_is_counted(const struct overview_slice *slice, const struct overview_device *device);

/* Looks at slice->one, and fills in the rest of a zeroed slice. 0, also where the region cannot be
 * read (OVERVIEW_UNREADABLE); or -ENOMEM. */
int overview_look_at_slice(struct overview_looker *looker, struct overview_slice *slice);

/* Frees what the slice owns; also of a zeroed slice. */
void overview_free_slice(struct overview_slice *slice);

/* Whether the process is in that state, by its name: "running", "paused", "dying" or "dead". */
bool overview_has_state(const struct overview_process *process, const char *state);
