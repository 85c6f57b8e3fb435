/*
 * Looks at files that others may truncate while they are mapped here. Without a guard, a program
 * that touches a page that is gone is killed by SIGBUS. Under a guard it reads zeros.
 */
#pragma once

#include <stdbool.h>

void guard_begin(void);
/* Whether pages are gone: then what was seen since the first guard_begin means nothing. */
bool guard_lost(void);
/* The same at the end of it. Each end goes with the last begin. */
bool guard_end(void);
