/*
 * Prometheus' text format, version 0.0.4: a family of samples is its name, what it is, and a line
 * for each sample; the samples of a family stand together.
 */
#pragma once

#include "text.h"

enum prom_type { PROM_GAUGE, PROM_COUNTER, PROM_HISTOGRAM };

struct prom_family {
	const char *name;
	enum prom_type type;
	const char *help; /* one line, without a backslash */
};

/* Begins a family. */
void prom_begin(struct text *text, const struct prom_family *family);

/* One sample. labels: what stands between the braces, as prom_label makes it, or ""; extra: some
 * more of these, or "". A value that is no number is left out. */
void prom_sample(struct text *text, const struct prom_family *family, const char *labels,
		 const char *extra, double value);

/* The samples of a histogram: how many values there are up to each bound, and above all of them, of
 * which the counts are those between two bounds; and their sum. */
void prom_histogram(struct text *text, const struct prom_family *family, const char *labels,
		    const double *bounds, const double *counts, size_t bound_count, double sum);

/* Adds name="value" to labels, after a comma where there are some already. Of the value, escaped as
 * the format asks for; bytes that are no UTF-8 and control characters are as escape.h has them. */
void prom_label(struct text *labels, const char *name, const char *value);
