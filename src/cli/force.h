/* Ends the processes that keep a slice alive, for vgpu rm --force. */
#pragma once

#include "fault.h"
#include "slices.h"

#define FORCE_PATIENCE_S 5

/* Returns how many processes keep the slice alive: those in its region, and each vgpu run of
 * it. If the only such process is a vgpu run that this pid namespace does not show, the count
 * is 1. */
unsigned force_count(const struct slices_one *slice);

/*
 * Sends SIGTERM to these processes, and after FORCE_PATIENCE_S seconds SIGKILL to those that
 * are still in the region. Never signals the caller. Sets *ret_ended to the number of processes
 * that got SIGTERM, also on failure, except for -ENOMEM. Returns 0 if no process is left, or
 * with a fault: -EPERM (a process is another user's), -EBUSY (processes are left) or -ENOMEM.
 * The fault's text is for after "the slice NAME is not removed: ".
 */
int force_end(const struct slices_one *slice, unsigned *ret_ended, struct fault *fault);
