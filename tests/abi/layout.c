#include "layout.h"

#include <stdio.h>
#include <string.h>

static int same(const struct layout *a, const struct layout *b)
{
	return strcmp(a->name, b->name) == 0 && a->size == b->size && a->align == b->align &&
	       a->offset == b->offset && a->is_signed == b->is_signed;
}

static void say(const char *who, const struct layout *row)
{
	fprintf(stderr, "    %s: %zu bytes, aligned to %zu, at offset %zu%s\n", who, row->size,
		row->align, row->offset, row->is_signed ? ", signed" : "");
}

int layout_compare(const struct layout *theirs, size_t rows)
{
	int differ = rows != our_layout_rows;

	for (size_t i = 0; i < rows && i < our_layout_rows; i++) {
		if (same(&our_layout[i], &theirs[i]))
			continue;
		fprintf(stderr, "%s differs\n", theirs[i].name);
		say("ours", &our_layout[i]);
		say("theirs", &theirs[i]);
		differ = 1;
	}
	return differ;
}
