/*
 * Lines on stderr: after the program's name, or with the level by which the journal sorts them
 * where that is what stderr is. Each line is escaped as a whole, since it may hold names that
 * tenants chose.
 */
#pragma once

#include <stdbool.h>
#include <syslog.h> /* LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO */

#include "fault.h"

__attribute__((format(printf, 2, 3))) void say(int level, const char *format, ...);

/* Remembers why in *last, for a fault that lasts and is to be said once; "" is no fault. Returns
 * whether *last had another text. */
bool say_changed(struct fault *last, const char *why);
