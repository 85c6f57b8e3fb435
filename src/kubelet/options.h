/* Reads command-line options of the programs that the kubelet calls. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* An option whose value is a text. */
struct text_option {
	const char *name;
	const char **value;
	int option;    /* as getopt_long(3) returns it */
	bool is_place; /* the value must be an absolute path; otherwise it must not be "" */
};

enum options_taken { OPTIONS_OTHER, OPTIONS_TAKEN, OPTIONS_BAD };

/* Takes the value if the option is one of these. OPTIONS_OTHER: it is not. OPTIONS_BAD: the
 * value is invalid, and a line was logged. */
enum options_taken options_take_text(const struct text_option *options, size_t count, int option,
				     const char *value);

/* Reads 1 to 86400 seconds. Returns false if the text is anything else, and logs a line with
 * the option's name. */
bool options_read_seconds(const char *name, const char *text, unsigned *ret_s);
