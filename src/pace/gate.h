/* Inside pace/: the gate (pace.h), for the pacer as it attaches. */
#pragma once

#include "pace.h"

/* Whether the gate is that region's. */
bool gate_is_at(const struct region *region);

/* The gate is the region's from now on, in which the process has a slot. After cores_attach. */
void gate_attach(struct region *region);

/* Whether launches have to ask may have changed: looks at once, not with the next tick. */
void gate_renew(void);

/* In a forked child: the gate belongs to no region. */
void gate_forget(void);
