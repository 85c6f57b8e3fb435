/* Whether anybody still has what was made for a container. */
#pragma once

#include <stdbool.h>

/* Whether a process lives in the region. In one that cannot be read, none does: a tenant may have
 * made it so, and its container has the directory mounted. */
bool lives_in_region(const char *path);

/* Whether any process has a file or a directory mounted whose path has that name in it, as all of a
 * container's have. In doubt one has. Where this process does not see the machine's processes, as
 * in a PID namespace of its own, none has. */
bool lives_in_mounts(const char *name);
