/*
 * The answer to /metrics: the findings of the last look, in Prometheus' text format. vgpud(8)
 * promises the names of metrics and labels: names are added, and none is renamed.
 */
#pragma once

#include "overview.h"
#include "self.h"
#include "text.h"
#include "track.h"

struct metrics_source {
	const struct overview *overview;
	const struct track *track; /* belongs to that overview */
	const struct self *self;
	bool with_hami; /* also writes the names that HAMi's monitor has */
};

/* Adds all metrics of the machine, its GPUs and its slices, and of vgpud. */
void metrics_write(struct text *text, const struct metrics_source *source);

/* Adds the metrics with HAMi's names alone. */
void metrics_write_hami(struct text *text, const struct metrics_source *source);
