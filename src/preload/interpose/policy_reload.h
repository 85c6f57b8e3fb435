/* Limits that change while the program runs. */
#pragma once

#include <stdbool.h>

/* Where the slice has a policy: looks whether its files changed, when the last look is LIMITS_NS
 * old, and has what they say hold. On the way of each call that limits concern; a few ns otherwise.
 */
void policy_reload_look(void);

#define LIMITS_NS ((uint64_t)50000000)

void policy_reload_forget(void); /* in a forked child */
