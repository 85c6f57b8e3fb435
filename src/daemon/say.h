/*
 * Lines on stderr: after the program's name, or with the level by which the journal sorts them
 * where that is what stderr is. Each line is escaped as a whole, since it may hold names that
 * tenants chose.
 */
#pragma once

#include <syslog.h> /* LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO */

__attribute__((format(printf, 2, 3))) void say(int level, const char *format, ...);
