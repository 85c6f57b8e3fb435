/*
 * The answer to /metrics: what the last look found, in Prometheus' text format. vgpud(8) promises
 * the names of metrics and labels: some are added, none is renamed.
 */
#pragma once

#include "overview.h"
#include "self.h"
#include "text.h"
#include "track.h"

struct metrics_source {
	const struct overview *overview;
	const struct track *track; /* of that overview */
	const struct self *self;
	bool with_hami; /* also the names that HAMi's monitor has */
};

void metrics_write(struct text *text, const struct metrics_source *source);

/* The part of it with HAMi's names. */
void metrics_write_hami(struct text *text, const struct metrics_source *source);
