/* Whether anybody still has what was made for a container. */
#pragma once

#include <stdbool.h>

/* Whether a process lives in the region. In one that cannot be read, none does: a tenant may have
 * made it so, and its container has the directory mounted. */
bool lives_in_region(const char *path);

/* A container that may live. The paths of its mounts contain its name. */
struct lives_name {
	const char *name;
	bool is_mounted; /* lives_in_mounts() sets this */
};

/* For each of the names: whether any process has a file or a directory mounted whose path has the
 * name in it. In doubt one has. Where this process does not see the machine's processes, as in a
 * PID namespace of its own, none has. Reads /proc once for all names. */
void lives_in_mounts(struct lives_name *names, unsigned count);
