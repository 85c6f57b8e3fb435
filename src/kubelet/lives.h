/* Finds out whether any process still uses a container's region or files. */
#pragma once

#include <stdbool.h>

/* Whether a living process has a slot in the region. A region that cannot be read counts as
 * unused: a tenant may have damaged it, and a living container still has its directory
 * mounted. */
bool lives_in_region(const char *path);

/* A container that may be alive. The paths of its mounts contain its name. */
struct lives_name {
	const char *name;
	bool is_mounted; /* lives_in_mounts() sets this */
};

/* Sets is_mounted of each name: whether any process has a mount whose path contains the name.
 * If that cannot be found out, it is true. In a PID namespace of its own, this process sees no
 * others, and it is false. Reads /proc once for all names. */
void lives_in_mounts(struct lives_name *names, unsigned count);
