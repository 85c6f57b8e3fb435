/*
 * A resource is the slices of one kind. The kubelet sees it as a plugin of its own, on a socket
 * of its own. Here are the methods of the device plugin API, v1beta1.
 */
#pragma once

#include "config.h"
#include "containers.h"
#include "devices.h"
#include "grpc.h"
#include "names.h"

#define RESOURCE_LIBRARY "/usr/local/lib/libvgpu.so" /* path in containers */

struct resource {
	const struct config *config;
	const struct containers_places *places;
	struct devices devices;
	struct names *names; /* asks for pods' names when a container starts */
};

/* The methods; their argument is a struct resource. */
extern const struct grpc_method resource_methods[];

/* Adds the message DevicePluginOptions: the optional methods that the kubelet should call. */
void resource_put_options(struct bytes *bytes);

/* Answers the method Allocate (allocate.c). */
enum grpc_status resource_allocate(void *arg, struct pb_message request, struct bytes *ret_message,
				   struct fault *fault);
