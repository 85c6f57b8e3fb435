/*
 * The gRPC services that the kubelet calls: k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin, and
 * pluginregistration.Registration, by which the kubelet finds the former.
 */
#pragma once

#include "grpc.h"
#include "prepare.h"

/* The methods of DRAPlugin; their argument is a struct prepare. */
extern const struct grpc_method methods_dra[];

struct methods_registration {
	const char *driver;
	const char *endpoint;          /* the path of DRAPlugin's socket */
	void (*registered)(void *arg); /* called when the kubelet reports on the registration */
	void *arg;
};

/* The methods of Registration; their argument is a struct methods_registration. */
extern const struct grpc_method methods_registration[];
