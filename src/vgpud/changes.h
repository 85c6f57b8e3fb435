/* Compares two looks at the machine, and reports the differences as events. */
#pragma once

#include "events.h"
#include "overview.h"
#include "track.h"

/* Reports what changed from the earlier look to overview. track belongs to overview, and keeps
 * how many refusals were reported. */
void changes_tell(struct events *events, const struct overview *earlier,
		  const struct overview *overview, struct track *track);
