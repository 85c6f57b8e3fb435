/* Options of the programs that the kubelet calls. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* An option whose value is kept as it is. */
struct text_option {
	const char *name;
	const char **value;
	int option;    /* as getopt_long(3) returns it */
	bool is_place; /* it is an absolute path; another is anything but "" */
};

enum options_taken { OPTIONS_OTHER, OPTIONS_TAKEN, OPTIONS_BAD };

/* Keeps the value if the option is one of these. OPTIONS_BAD: it is one, and its value cannot be,
 * which a line says. */
enum options_taken options_take_text(const struct text_option *options, size_t count, int option,
				     const char *value);

/* Reads 1 to 86400 seconds. False: the text is something else, and a line that names the option
 * says so. */
bool options_read_seconds(const char *name, const char *text, unsigned *ret_s);
