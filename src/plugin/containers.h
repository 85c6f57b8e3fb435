/*
 * The directories that containers have on the host. Each allocation gets a name that is never
 * used again, and
 *
 *   STATE/NAME/policy/   its limits (slice/policy.h), mounted read-only
 *   STATE/NAME/record    when it was made, of which resource, and its devices, a line each
 *   STATE/NAME/pod       its namespace, pod and name (pod.h), as soon as they are known
 *   REGIONS/NAME/        the directory of its region, mounted read-write; the tenant can write it
 *
 * All containers together have
 *
 *   STATE/libvgpu.so     a copy of the library, which exists as long as the policies do
 *   STATE/ld.so.preload  a line with the library's path in containers
 *
 * STATE/NAME exists whole or not at all. It is removed when its container is gone, which the
 * kubelet never reports; sweep.c has the rule. REGIONS should be in memory, as the pacer writes
 * to regions all the time. Directories that are missing there are made again at a start.
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
	struct bytes library;        /* the bytes of libvgpu.so, as containers_prepare read it */
	const char *inside;          /* the library's path in containers */
};

/* Reads libvgpu.so from the path `library`. Makes the directories and the files that all
 * containers get, if they are missing, and missing directories of regions. Removes directories
 * that a killed plugin left half made. inside: the library's path in containers; it must live
 * as long as *places. Returns 0, or a negative errno with a fault. */
int containers_prepare(struct containers_places *places, const char *library, const char *inside,
		       struct fault *fault);

/* Whether one of the two directories was removed and cannot be made again. That is so if it is
 * mounted here, as in a container or a unit of systemd. A directory that is made on the host now is
 * another one. */
bool containers_are_lost(const struct containers_places *places);

/* Makes a container's directory, and the files of all containers if they are missing. ids: the
 * IDs of its devices, with NULL at the end. ret_name: the directory's name. Returns 0, or a
 * negative errno with a fault. */
int containers_make(const struct containers_places *places, const char *resource,
		    const char *const *ids, const struct policy *policy,
		    char ret_name[CONTAINERS_NAME_LEN], struct fault *fault);

/* Call it when a container with these devices is about to start. It makes missing files and
 * directories of its mounts again. ids ends with NULL. Returns 0; -ENOENT with a fault: the
 * container's limits were lost, and cannot be made again; or another negative errno with a
 * fault. After an error, the container must not start. */
int containers_ready(const struct containers_places *places, const char *const *ids,
		     struct fault *fault);

/* Moves the directories of containers that are gone to where containers_remove finds them.
 * in_use: the IDs of devices that pods had in the last grace_s seconds, one after the other,
 * each with a NUL; NULL: not known. Returns the number of these containers, or a negative
 * errno. */
int containers_sweep(const struct containers_places *places, const struct bytes *in_use,
		     unsigned grace_s);

/* Removes some of the files in these directories, 4,096 at most, in a few ms. Call it again and
 * again. Returns whether none is left. */
bool containers_remove(const struct containers_places *places);
