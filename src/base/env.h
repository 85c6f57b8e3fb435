/* The environment of a process, if the process may trust it. */
#pragma once

/* The variable's value. NULL if the variable is unset or empty, and in a program that runs with
 * another user's rights (AT_SECURE: set-user-id and the like), as its caller chose the environment.
 */
const char *env_get(const char *name);
