/*
 * A resource: the slices of one kind, as the kubelet gets them from a plugin of its own, on a
 * socket of its own. The methods of the device plugin API, v1beta1.
 */
#pragma once

#include "config.h"
#include "containers.h"
#include "devices.h"
#include "grpc.h"
#include "names.h"

#define RESOURCE_LIBRARY "/usr/local/lib/libvgpu.so" /* where containers have it */

struct resource {
	const struct config *config;
	const struct containers_places *places;
	struct devices devices;
	struct names *names; /* learn that a container starts */
};

/* The methods, whose argument is a struct resource. */
extern const struct grpc_method resource_methods[];

/* Adds what the kubelet should ask for: the message DevicePluginOptions. */
void resource_put_options(struct bytes *bytes);

/* Answers Allocate (allocate.c). */
enum grpc_status resource_allocate(void *arg, struct pb_message request, struct bytes *ret_message,
				   struct fault *fault);
