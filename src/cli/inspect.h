/* The result of vgpu inspect for one region file. */
#pragma once

#include "sight.h"

struct inspection {
	const char *path;     /* of the region file */
	const char *gang;     /* the policy's word for the slice's gang; NULL: no policy is known */
	struct sight sight;   /* the region's content */
	unsigned wrong_count; /* entries of wrong; 0: the region is whole */
	char **wrong;         /* a sentence for each violation of the region's invariants */
};

/* Prints the result on stdout as one JSON document. Returns 0, or the exit status after a line
 * on stderr. A vgpu that was built without json-c always fails. */
int inspect_print_json(const struct inspection *found);
