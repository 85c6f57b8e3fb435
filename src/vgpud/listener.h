/* The address at which vgpud listens for HTTP, on a socket of its own or one that systemd hands
 * over. */
#pragma once

#include <stdbool.h>

#include "fault.h"

/* Listens on "ADDRESS:PORT", where an IPv6 address stands in brackets. Returns a non-blocking
 * descriptor, which the caller closes, or a negative errno with a fault. */
int listener_open(const char *address, struct fault *fault);

/* Checks an address without listening there. Returns 0, or -EINVAL with a fault. */
int listener_check(const char *address, struct fault *fault);

/* Whether only processes of this machine can reach the address or socket: it is a loopback
 * address, or a Unix socket. The address must be one that listener_check accepts. */
bool listener_address_is_local(const char *address);
bool listener_is_local(int fd);
