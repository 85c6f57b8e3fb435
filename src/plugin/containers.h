/*
 * What containers have on the host: below a state directory, a directory for each that was
 * allocated, of a name that is never used again:
 *
 *   policy/   its limits (slice/policy.h), mounted read-only
 *   region/   where its region is made, mounted read-write: all in it is the tenant's
 *   record    when it was made, of which resource, and which devices it has, a line each
 *
 * and ld.so.preload, a file that all of them get. A directory is there whole or not at all. It is
 * removed when its container is gone, which the kubelet never says; containers.c has the rule.
 */
#pragma once

#include <stdbool.h>

#include "bytes.h"
#include "devices.h"
#include "policy.h"

#define CONTAINERS_STATE      "/var/lib/vgpu/kubernetes"
#define CONTAINERS_POLICY     "policy"
#define CONTAINERS_REGION     "region"
#define CONTAINERS_PRELOAD    "ld.so.preload"
#define CONTAINERS_NAME_LEN   33 /* 32 digits and a NUL */
#define CONTAINERS_PATH_MAX   256
#define CONTAINERS_REGION_DIR "/run/vgpu" /* in the container */

/* Makes the state directory, if need be, and the file ld.so.preload with the library's path in
 * containers; removes what a killed plugin left half made. */
int containers_prepare(const char *state, const char *library, struct fault *fault);

/* Makes a container's directory; ret_name is its name. ids: of its devices, which ends with NULL.
 */
int containers_make(const char *state, const char *resource, const char *const *ids,
		    const struct policy *policy, char ret_name[CONTAINERS_NAME_LEN],
		    struct fault *fault);

/* Removes the directories of containers that are gone. in_use: the IDs of devices that pods had in
 * the last grace_s seconds, a string after the other, with their NULs; NULL: not known. How many
 * were removed, or a negative errno. */
int containers_sweep(const char *state, const struct bytes *in_use, unsigned grace_s);
