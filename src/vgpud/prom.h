/*
 * Prometheus' text format, version 0.0.4. A family of samples has a name, a type, a help text
 * and a line for each sample. The samples of a family stand together.
 */
#pragma once

#include "text.h"

enum prom_type { PROM_GAUGE, PROM_COUNTER, PROM_HISTOGRAM };

struct prom_family {
	const char *name;
	enum prom_type type;
	const char *help; /* one line, without a backslash */
};

/* Begins a family: writes its help and its type. */
void prom_begin(struct text *text, const struct prom_family *family);

/* Writes one sample. labels and extra: the text between the braces, as prom_label makes it,
 * each may be "". A value that is not finite has no line. */
void prom_sample(struct text *text, const struct prom_family *family, const char *labels,
		 const char *extra, double value);

/* Writes the samples of a histogram. counts has bound_count + 1 numbers: the values up to the
 * first bound, between each two bounds, and above the last. sum: the sum of all values. */
void prom_histogram(struct text *text, const struct prom_family *family, const char *labels,
		    const double *bounds, const double *counts, size_t bound_count, double sum);

/* Adds name="value" to labels, after a comma if labels has text. The value is escaped as the
 * format demands. Control characters and bytes that are not UTF-8 are escaped as escape.h
 * says. */
void prom_label(struct text *labels, const char *name, const char *value);
