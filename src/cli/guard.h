/*
 * Looks at files that others may truncate while they are mapped here: what touches a page that is
 * gone is killed by SIGBUS elsewhere, and reads zeros under guard.
 */
#pragma once

#include <stdbool.h>

void guard_begin(void);
/* Whether pages were gone: then what was seen since guard_begin means nothing. */
bool guard_end(void);
