/* Inside pace/: the gate (pace.h), for the pacer as it attaches. */
#pragma once

#include "pace.h"

/* From now on, the gate reads the words of this region, in which the process has a slot. Called
 * after cores_attach(). */
void gate_attach(struct region *region);

/* Checks whether launches have to ask, without waiting for the next tick of the clock. */
void gate_recheck(void);

/* In a forked child: the gate belongs to no region. */
void gate_forked(void);
