/* Signals that a daemon's loop reads from a descriptor, together with all its other
 * descriptors. */
#pragma once

#include <stdbool.h>

/* Blocks SIGTERM, SIGINT and, if hangups, SIGHUP. Returns a non-blocking signalfd(2) that
 * delivers them, or -1 with errno. Ignores SIGPIPE, as a client that goes away must not end the
 * daemon. Call it before the process has threads, which inherit the mask. */
int signals_open(bool hangups);
