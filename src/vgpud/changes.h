/* What is different from one look at the machine to the next, told as events. */
#pragma once

#include "events.h"
#include "overview.h"
#include "track.h"

/* earlier is the look before. track is of overview; which refusals were told is noted in it. */
void changes_tell(struct events *events, const struct overview *earlier,
		  const struct overview *overview, struct track *track);
