/* Where vgpud listens: a socket of its own, or one that systemd hands over. */
#pragma once

#include <stdbool.h>

#include "fault.h"

/* Listens on "ADDRESS:PORT", where an IPv6 address stands in brackets. The descriptor, or a
 * negative errno with a fault. */
int listener_open(const char *address, struct fault *fault);

/* The address alone: 0, or -EINVAL with a fault. */
int listener_check(const char *address, struct fault *fault);

/* Whether only processes of this machine reach it: a loopback address, or a Unix socket. The former
 * is of an address that listener_check accepts. */
bool listener_address_is_local(const char *address);
bool listener_is_local(int fd);
