/* What vgpu inspect found in a region file, for those who print it. */
#pragma once

#include "sight.h"

struct inspection {
	const char *path;
	const char *gang; /* what the slice's policy says of gangs; NULL: no policy is known */
	struct sight sight;
	unsigned wrong_count;
	char **wrong; /* a line each */
};

/* As one JSON document on stdout: 0, or what to exit with after a line on stderr, which is so where
 * this vgpu was built without a JSON library. */
int inspect_print_json(const struct inspection *found);
