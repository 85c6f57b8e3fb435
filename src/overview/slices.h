/*
 * The slices on this machine, whoever made them:
 *
 *   vgpu run's        STATE/NAME, where STATE is what VGPU_STATE names, or else the user's own
 *                     state directory and root's; for root, those of all users (state_dir.h)
 *   for containers    those of vgpu cdi (container.h), for users who may enter their directories
 *   of Kubernetes     those of vgpu-device-plugin, a slice for each container, for root:
 *                     policies in /var/lib/vgpu/kubernetes and regions in /run/vgpu-kubernetes,
 *                     or policies/ and regions/ in the directory that VGPU_KUBERNETES names
 *   of claims         those of vgpu-dra, a slice for each ResourceClaim, for root, by the name
 *                     NAMESPACE/NAME (claims.h), or in dra/ and dra/regions/ in that directory
 *   HAMi's            HAMI/containers/POD-UID_CONTAINER/UUID.cache, where HAMI is what
 *                     VGPU_HAMI names, or else /usr/local/vgpu: where its device plugin keeps
 *                     its containers'
 *   a loose region    /tmp/cudevshr.cache, where HAMi-core's variables alone make a slice; or
 *                     a file that somebody names
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

struct slices_one {
	enum slices_kind kind;
	char *name;        /* for people, and to find it by; of a loose one, its path */
	size_t holder_len; /* of the name: as far as it is the container's, or the claim's. HAMi's
			    * containers may have several slices, each with a "/" and more after it
			    */
	char *region_path; /* there may be no file yet, or any more */
	char *policy_path; /* NULL: it has none, its limits are the region's and the environment's
			    */
	char *state_path;  /* the slice's lock is state_path/NAME/lock; NULL: it has none. Of
			    * SLICES_RUN it is the state directory */
	struct pod_users *pods; /* the containers that use a slice of SLICES_KUBERNETES or
				 * SLICES_CLAIM, or of SLICES_HAMI (pod_logs.h); NULL: not known */
	bool shares_pods;       /* pods belongs to another slice of the list */
	uid_t owner;            /* who made it, as far as files tell */
	gid_t group;            /* of SLICES_RUN, likewise */
};

struct slices {
	unsigned count;
	struct slices_one *one;
};

/* Lists them, by slices_compare. Directories that cannot be read are passed over. -ENOMEM. */
int slices_list(struct slices *ret_slices, struct fault *fault);
/* By kind, name and path: below, equal to or above 0. No two in a list are equal. */
int slices_compare(const struct slices_one *left, const struct slices_one *right);
void slices_free(struct slices *slices); /* also of a zeroed one */

/* "run", "container", "kubernetes", "claim", "hami" or "loose": stable, for --json. */
const char *slices_kind_name(enum slices_kind kind);

/* Whether each container, or each claim, of that kind is a tenant of its own, whoever owns its
 * files. */
bool slices_is_of_container(const struct slices_one *slice);
/* Whether both are of one container, or of one claim. */
bool slices_is_same_container(const struct slices_one *one, const struct slices_one *other);

/*
 * The one that is meant by NAME, the beginning of one name, USER/NAME, or the path of a region,
 * which has a "/" and need not be in the list. USER is a user's name or number. Where several
 * slices have the name, the caller's own is meant; for root, none is. -ENOENT or -ENOTUNIQ with a
 * fault. ret_one belongs to the list.
 */
int slices_find(struct slices *slices, const char *name, const struct slices_one **ret_one,
		struct fault *fault);

/* The owner's name, or number where it has no name, into buf, which is returned. */
char *slices_user(const struct slices_one *one, char *buf, size_t len);

/* The shortest of NAME, USER/NAME and the path by which slices_find finds it, into buf, which is
 * returned. */
char *slices_word(const struct slices *slices, const struct slices_one *one, char *buf, size_t len);
