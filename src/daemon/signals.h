/* Signals as something to read: a daemon's loop waits for them with all else. */
#pragma once

#include <stdbool.h>

/* Blocks SIGTERM, SIGINT and, where hangups, SIGHUP. A signalfd(2) that they are read from, which
 * does not block; or -1 with errno. Ignores SIGPIPE: a client that goes away is no reason to end.
 * Before there are threads. */
int signals_open(bool hangups);
