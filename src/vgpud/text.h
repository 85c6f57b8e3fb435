/* Text that grows, for an answer that is composed and then sent whole. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct text {
	char *bytes; /* ends with NUL; NULL: nothing was added yet */
	size_t length, room;
	bool failed; /* memory ran out, and some of the text is missing */
};

/* Adds to the end. Without memory, it sets text->failed. */
__attribute__((format(printf, 2, 3))) void text_add(struct text *text, const char *format, ...);
void text_free(struct text *text); /* also of a zeroed one */
