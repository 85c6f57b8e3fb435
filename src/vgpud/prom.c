#include "prom.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "escape.h"

#define ESCAPED_LEN 4 /* what a byte of the text becomes at most (escape.h) */

void prom_begin(struct text *text, const struct prom_family *family)
{
	text_add(text, "# HELP %s %s\n# TYPE %s %s\n", family->name, family->help, family->name,
		 family->type == PROM_COUNTER ? "counter" : "gauge");
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

void prom_label(struct text *labels, const char *name, const char *value)
{
	size_t room = strlen(value) * ESCAPED_LEN + 1;
	char *plain = malloc(room);

	text_add(labels, "%s%s=\"", labels->length ? "," : "", name);
	for (const char *at = plain ? escape(value, plain, room) : ""; *at; at++)
		text_add(labels, *at == '"' || *at == '\\' ? "\\%c" : "%c", *at);
	text_add(labels, "\"");
	free(plain);
}
