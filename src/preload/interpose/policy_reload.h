/* A policy that changes while the program runs. */
#pragma once

#include <stdbool.h>

/* If the slice has a policy and the last look is LIMITS_NS old: looks whether the policy's files
 * have changed, and applies the new limits. Each call that a limit concerns calls this; it takes a
 * few ns if no look is due. */
void policy_reload_look(void);

#define LIMITS_NS ((uint64_t)50000000)

void policy_reload_forked(void); /* in a forked child */
