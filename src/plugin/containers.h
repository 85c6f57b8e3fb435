/*
 * What containers have on the host. For each that was allocated there is a name that is never used
 * again, and
 *
 *   STATE/NAME/policy/   its limits (slice/policy.h), mounted read-only
 *   STATE/NAME/record    when it was made, of which resource, and its devices, a line each
 *   STATE/NAME/pod       its namespace, pod and name (pod.h), as soon as they are known
 *   REGIONS/NAME/        where its region is made, mounted read-write: all in it is the tenant's
 *
 * and for all of them
 *
 *   STATE/libvgpu.so     a copy of the library, which is there as long as the policies are
 *   STATE/ld.so.preload  a line with the library's path in containers
 *
 * STATE/NAME is there whole or not at all. It is removed when its container is gone, which the
 * kubelet never says; sweep.c has the rule. REGIONS should be in memory, as the pacer writes
 * to regions all the time; what is missing there is made again at a start.
 */
#pragma once

#include <stdbool.h>

#include "bytes.h"
#include "devices.h"
#include "policy.h"
#include "records.h"

#define CONTAINERS_STATE      "/var/lib/vgpu/kubernetes"
#define CONTAINERS_REGIONS    "/run/vgpu-kubernetes"
#define CONTAINERS_POLICY     "policy"
#define CONTAINERS_PRELOAD    "ld.so.preload"
#define CONTAINERS_NAME_LEN   RECORDS_NAME_LEN
#define CONTAINERS_PATH_MAX   256
#define CONTAINERS_REGION_DIR "/run/vgpu" /* in the container */

struct containers_places {
	const char *state, *regions; /* absolute paths */
	struct bytes library;        /* libvgpu.so, as containers_prepare has read it */
	const char *inside;          /* its path in containers */
};

/* Reads libvgpu.so from where it is now, and makes the directories and the files that all
 * containers get, if need be. Removes what a killed plugin left half made, and makes regions'
 * directories that are missing. */
int containers_prepare(struct containers_places *places, const char *library, const char *inside,
		       struct fault *fault);

/* Whether one of the two directories was removed and cannot be made again: it is mounted here, as
 * in a container or a unit of systemd, and what is made on the host now is another one. */
bool containers_are_lost(const struct containers_places *places);

/* Makes a container's directory, and what all containers get where it is missing; ret_name is its
 * name. ids: of its devices, which ends with NULL. */
int containers_make(const struct containers_places *places, const char *resource,
		    const char *const *ids, const struct policy *policy,
		    char ret_name[CONTAINERS_NAME_LEN], struct fault *fault);

/* A container with these devices is about to start: makes again what of its mounts is missing. ids
 * ends with NULL. -ENOENT with a fault where that cannot be made again, as its limits were lost;
 * another errno where it fails. Then the container must not start. */
int containers_ready(const struct containers_places *places, const char *const *ids,
		     struct fault *fault);

/* Moves the directories of containers that are gone to where containers_remove finds them. in_use:
 * the IDs of devices that pods had in the last grace_s seconds, a string after the other, with
 * their NULs; NULL: not known. How many there were, or a negative errno. */
int containers_sweep(const struct containers_places *places, const struct bytes *in_use,
		     unsigned grace_s);

/* Removes some of what is in these directories: it is called again and again, and takes some ms at
 * most. Whether nothing is left. */
bool containers_remove(const struct containers_places *places);
