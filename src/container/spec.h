/*
 * CDI specifications (Container Device Interface) of slices for containers, version 0.5.0. It is
 * the lowest that allows a digit at the start of a device's name, and the highest that Podman 4.3
 * reads.
 *
 * Each slice has a specification of its own, with one device, CONTAINER_SPEC_KIND=NAME. It brings
 * the slice's mounts and no GPU: a container takes the GPU by another device, such as NVIDIA's
 * nvidia.com/gpu=0, or by another flag.
 */
#pragma once

#include "container.h"

#define CONTAINER_SPEC_KIND "vgpu.local/slice"

/* The specification's text, to be freed. -ENOTSUP with a fault in a build without json-c. */
int container_spec_text(const struct container_places *places, const struct container_slice *slice,
			char **ret_text, struct fault *fault);

/* The usual path of a slice's specification. */
void container_spec_path(const struct container_places *places, const char *name,
			 char ret_path[PATH_MAX]);

/* Writes it to path, by a rename. The directory is made if need be. */
int container_spec_write(const char *path, const char *text, struct fault *fault);
