/*
 * Registers resources with the kubelet, by its directory of sockets. Each resource is served
 * there and registered. That is repeated when the kubelet was started again, or stopped asking
 * for the list.
 */
#pragma once

#include "resource.h"

#define KUBELET_DIR    "/var/lib/kubelet/device-plugins"
#define KUBELET_SOCKET "kubelet.sock"

struct kubelet;

/* Begins to serve and register. Steps that fail, as while there is no kubelet, are retried
 * until they work. Resources and dir must live until kubelet_end. restarted is called when the
 * kubelet was started. Returns NULL with a fault on failure. */
struct kubelet *kubelet_begin(struct loop *loop, const char *dir, struct resource *resources,
			      unsigned count, void (*restarted)(void *arg), void *arg,
			      struct fault *fault);
void kubelet_end(struct kubelet *kubelet); /* accepts NULL */

/* Call it when the GPUs' health has changed. The kubelet gets the lists of devices again. */
void kubelet_renew(struct kubelet *kubelet);
