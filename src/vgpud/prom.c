#include "prom.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "escape.h"

#define ESCAPED_LEN 4 /* the most bytes that one byte of the text becomes (escape.h) */

void prom_begin(struct text *text, const struct prom_family *family)
{
	static const char *const types[] = {
		[PROM_GAUGE] = "gauge", [PROM_COUNTER] = "counter", [PROM_HISTOGRAM] = "histogram"};

	text_add(text, "# HELP %s %s\n# TYPE %s %s\n", family->name, family->help, family->name,
		 types[family->type]);
}

void prom_sample(struct text *text, const struct prom_family *family, const char *labels,
		 const char *extra, double value)
{
	const char *comma = *labels && *extra ? "," : "";

	if (!isfinite(value))
		return;
	if (*labels || *extra)
		text_add(text, "%s{%s%s%s} %.15g\n", family->name, labels, comma, extra, value);
	else
		text_add(text, "%s %.15g\n", family->name, value);
}

void prom_histogram(struct text *text, const struct prom_family *family, const char *labels,
		    const double *bounds, const double *counts, size_t bound_count, double sum)
{
	const char *comma = *labels ? "," : "";
	double so_far = 0;

	for (size_t i = 0; i <= bound_count; i++) {
		so_far += counts[i];
		if (i < bound_count)
			text_add(text, "%s_bucket{%s%sle=\"%.15g\"} %.15g\n", family->name, labels,
				 comma, bounds[i], so_far);
		else
			text_add(text, "%s_bucket{%s%sle=\"+Inf\"} %.15g\n", family->name, labels,
				 comma, so_far);
	}
	text_add(text, "%s_sum{%s} %.15g\n%s_count{%s} %.15g\n", family->name, labels, sum,
		 family->name, labels, so_far);
}

void prom_label(struct text *labels, const char *name, const char *value)
{
	size_t room = strlen(value) * ESCAPED_LEN + 1;
	char *plain = malloc(room);

	if (!plain) {
		labels->failed = true;
		return;
	}
	text_add(labels, "%s%s=\"", labels->length ? "," : "", name);
	for (const char *at = escape(value, plain, room); *at; at++)
		text_add(labels, *at == '"' || *at == '\\' ? "\\%c" : "%c", *at);
	text_add(labels, "\"");
	free(plain);
}
