/*
 * A daemon's log lines, on stderr. Where stderr is the journal, a line begins with its level,
 * by which the journal sorts; elsewhere it begins with the program's name. Each line is escaped
 * as a whole, since it may hold names that tenants chose.
 */
#pragma once

#include <stdbool.h>
#include <syslog.h> /* LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO */

#include "fault.h"

/* Writes one line. level: LOG_ERR to LOG_INFO. Text beyond 2,047 bytes is cut off. */
__attribute__((format(printf, 2, 3))) void say(int level, const char *format, ...);

/* Returns whether why differs from *last, and keeps why there. With it, a fault that lasts is
 * logged once. why: the fault's text, or "" where there is no fault. */
bool say_changed(struct fault *last, const char *why);
