/* The environment, where it may be trusted. */
#pragma once

/* The variable's value, or NULL when it is unset, empty, or the program runs with another user's
 * rights (AT_SECURE: set-user-id and the like), whose environment its caller chose. */
const char *env_get(const char *name);
