/*
 * The services that the kubelet calls: k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin, and
 * pluginregistration.Registration, by which it finds the former.
 */
#pragma once

#include "grpc.h"
#include "prepare.h"

/* Their argument is a struct prepare. */
extern const struct grpc_method methods_dra[];

struct methods_registration {
	const char *driver;
	const char *endpoint; /* the path of the other service's socket */
	void (*registered)(void *arg);
	void *arg;
};

/* Their argument is a struct methods_registration. */
extern const struct grpc_method methods_registration[];
