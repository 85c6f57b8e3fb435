/* Ending what lives in a slice, for vgpu rm --force. */
#pragma once

#include "fault.h"
#include "slices.h"

/* How many processes keep the slice alive: those in its region, and each vgpu run that has it. A
 * vgpu run that cannot be seen from here counts as 1 where there is no other process. */
unsigned force_count(const struct slices_one *slice);

/*
 * Sends them SIGTERM, and after FORCE_PATIENCE_S seconds SIGKILL to those that are still in the
 * region. Never signals the caller. *ret_ended: how many processes were signalled. 0; -EBUSY,
 * -EPERM or -ENOMEM with a fault that goes on from "it is not removed: ".
 */
int force_end(const struct slices_one *slice, unsigned *ret_ended, struct fault *fault);

#define FORCE_PATIENCE_S 5
