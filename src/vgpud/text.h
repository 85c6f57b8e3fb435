/* Text that grows, for an answer that is put together and then sent whole. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct text {
	char *bytes; /* ends with NUL once anything was added; NULL while empty */
	size_t length, room;
	bool failed; /* there was no memory for all of it */
};

__attribute__((format(printf, 2, 3))) void text_add(struct text *text, const char *format, ...);
void text_free(struct text *text); /* also of a zeroed one */
