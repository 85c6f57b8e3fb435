/* Options of the programs that the kubelet calls. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* An option whose value is kept as it is. */
struct text_option {
	int option; /* as getopt_long(3) returns it */
	const char **value;
};

/* Keeps the value if the option is one of these; whether it is. */
bool options_take_text(const struct text_option *options, size_t count, int option,
		       const char *value);

/* Reads 1 to 86400 seconds. False: the text is something else, and a line that names the option
 * says so. */
bool options_read_seconds(const char *name, const char *text, unsigned *ret_s);
