/*
 * Lists the slices on this machine that this user can see, of all the programs that make slices.
 * The kinds, and where their files are:
 *
 *   SLICES_RUN         made by vgpu run. STATE/NAME, where STATE is the value of VGPU_STATE, or
 *                      else this user's and root's state directories. Root sees those of all
 *                      users (state_dir.h)
 *   SLICES_CONTAINER   made by vgpu cdi (container.h). Seen by users who may enter their
 *                      directories
 *   SLICES_KUBERNETES  made by vgpu-device-plugin, one for each container. Seen by root.
 *                      Policies are in /var/lib/vgpu/kubernetes, regions in
 *                      /run/vgpu-kubernetes. With VGPU_KUBERNETES, they are in policies/ and
 *                      regions/ of the directory that it names
 *   SLICES_CLAIM       made by vgpu-dra, one for each ResourceClaim. Seen by root, by the name
 *                      NAMESPACE/NAME (claims.h). With VGPU_KUBERNETES, in dra/ and
 *                      dra/regions/ of that directory
 *   SLICES_HAMI        made by HAMi's device plugin. HAMI/containers/POD-UID_CONTAINER/
 *                      UUID.cache, where HAMI is the value of VGPU_HAMI, or else
 *                      /usr/local/vgpu
 *   SLICES_LOOSE       a region without a known maker: /tmp/cudevshr.cache, which HAMi-core's
 *                      variables alone make, or a file that the user names
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "fault.h"
#include "pod.h"

enum slices_kind {
	SLICES_RUN,
	SLICES_CONTAINER,
	SLICES_KUBERNETES,
	SLICES_CLAIM,
	SLICES_HAMI,
	SLICES_LOOSE
};

/* A slice. It owns its strings and, unless shares_pods, its pods. */
struct slices_one {
	enum slices_kind kind;
	char *name; /* the name that slices_find takes; of SLICES_LOOSE, the region's path */
	/* The length of the part of the name that identifies the container or the claim. A
	 * container of HAMi may have several slices; each name has "/" and more after this part. */
	size_t holder_len;
	char *region_path; /* the file may not exist yet, or no longer */
	/* The directory of the policy; NULL: the slice has none, and its limits are in the region
	 * and in the environment of its processes. */
	char *policy_path;
	/* The slice's lock file is state_path/NAME/lock; NULL: the slice has none. For SLICES_RUN,
	 * this is the state directory. */
	char *state_path;
	/* The containers that use a slice of SLICES_KUBERNETES, SLICES_CLAIM or SLICES_HAMI
	 * (pod_logs.h); NULL: not known. */
	struct pod_users *pods;
	bool shares_pods;    /* pods belongs to another slice of the list */
	bool pods_by_cgroup; /* pods are of the slice's processes (pod_cgroup.h) */
	uid_t owner;         /* the owner of the slice's directory or region */
	gid_t group;         /* the group of the directory; 0 for SLICES_HAMI and SLICES_LOOSE */
};

struct slices {
	unsigned count;
	struct slices_one *one;
};

/* Lists the slices, in the order of slices_compare. Skips directories that cannot be read.
 * Returns 0; or -ENOMEM with a fault and an empty list, where there is no memory or no free
 * descriptor. The caller frees the list. */
int slices_list(struct slices *ret_slices, struct fault *fault);
void slices_free(struct slices *slices); /* slices may be zeroed */

/* Compares by kind, then by name, then by the region's path. Returns a figure below, equal to
 * or above 0. No two slices of a list are equal. */
int slices_compare(const struct slices_one *left, const struct slices_one *right);

/* Returns "run", "container", "kubernetes", "claim", "hami" or "loose". --json prints these
 * names, so they never change. */
const char *slices_kind_name(enum slices_kind kind);

/* Whether the slice's tenant is a container or a claim, and not the user who owns its files. */
bool slices_is_of_container(const struct slices_one *slice);

/* Whether both slices belong to the same container, or to the same claim. */
bool slices_is_same_container(const struct slices_one *one, const struct slices_one *other);

/*
 * Finds the slice that the text `name` means: NAME, the start of only one slice's name,
 * USER/NAME, or the path of a region. USER is a user's name or number. A path has a "/"; if the
 * list has no slice with that region, a slice of SLICES_LOOSE is added to the list. If several
 * slices are called NAME, the caller's own is meant, except for root. Returns 0, or with a
 * fault -ENOENT (there is no such slice), -ENOTUNIQ (the name means several slices) or -ENOMEM.
 * *ret_one belongs to the list, and is valid until the next call or slices_free.
 */
int slices_find(struct slices *slices, const char *name, const struct slices_one **ret_one,
		struct fault *fault);

/* Writes the name of the slice's owner into buf, or the owner's number if there is no name.
 * Returns buf, which has len bytes. */
char *slices_user(const struct slices_one *one, char *buf, size_t len);

/* Writes into buf the shortest text by which slices_find finds the slice: NAME, USER/NAME or
 * the region's path. Returns buf, which has len bytes. */
char *slices_word(const struct slices *slices, const struct slices_one *one, char *buf, size_t len);
