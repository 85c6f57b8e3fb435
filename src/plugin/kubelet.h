/*
 * The kubelet, by its directory of sockets: each resource is served there and registered, and again
 * whenever the kubelet was started again or lost sight of it.
 */
#pragma once

#include "resource.h"

#define KUBELET_DIR    "/var/lib/kubelet/device-plugins"
#define KUBELET_SOCKET "kubelet.sock"

struct kubelet;

/* Begins; what cannot be done yet, as while there is no kubelet, is tried until it can. Resources
 * and dir stay the caller's. NULL with a fault. restarted is called when the kubelet was. */
struct kubelet *kubelet_begin(struct loop *loop, const char *dir, struct resource *resources,
			      unsigned count, void (*restarted)(void *arg), void *arg,
			      struct fault *fault);
void kubelet_end(struct kubelet *kubelet); /* also of NULL */

/* The GPUs' health has changed: the kubelet gets the lists. */
void kubelet_renew(struct kubelet *kubelet);
