/*
 * The slices for containers of Kubernetes' ResourceClaims, which vgpu-dra makes: where they are,
 * and of which claims. A claim has
 *
 *   STATE/claims/UID.name      its namespace and name, as NAMESPACE/NAME and a line's end
 *   STATE/claims/UID.pods      which containers of which pods use it (pod.h), where that is known
 *   STATE/policies/claim-UID/  \ the policy, and the region's directory, of a slice for containers
 *   REGIONS/claim-UID/         / (container.h) that is called claim-UID
 *
 * UID.name is there if any of the others is: it is written first and removed last. Only root may
 * read the files in STATE/claims.
 */
#pragma once

#include "container.h"

#define CLAIMS_STATE     "/var/lib/vgpu/dra"
#define CLAIMS_REGIONS   "/run/vgpu-dra"
#define CLAIMS_UID_LEN   48  /* with its NUL */
#define CLAIMS_NAME_LEN  320 /* of NAMESPACE/NAME, with its NUL */
#define CLAIMS_FILE_LEN  (CLAIMS_UID_LEN + 8)
#define CLAIMS_SLICE_LEN (CONTAINER_NAME_MAX + 1)

struct claims_places {
	char claims[CONTAINER_DIR_LEN];     /* STATE/claims */
	struct container_places containers; /* its specs are "", its tmpfiles are nowhere */
};

/* -EINVAL with a fault: a path is not absolute, or too long. */
int claims_find_places(const char *state, const char *regions, struct claims_places *ret_places,
		       struct fault *fault);

/* The name of the claim's slice. */
void claims_slice_name(const char *uid, char ret_name[CLAIMS_SLICE_LEN]);
/* The UID of the claim whose slice has that name, of len bytes. False: it is none of a claim's. */
bool claims_slice_uid(const char *slice, size_t len, char ret_uid[CLAIMS_UID_LEN]);

/* "UID.pods", of places->claims. */
void claims_pods_file(const char *uid, char ret_file[CLAIMS_FILE_LEN]);

/* Writes UID.name. 0, or a negative errno with a fault. */
int claims_name_write(const struct claims_places *places, const char *uid, const char *name,
		      struct fault *fault);
/* Removes it, and UID.pods; 0 also where there is none. */
int claims_name_remove(const struct claims_places *places, const char *uid, struct fault *fault);

/* Calls each(arg, uid, name) for each claim that has a UID.name, in no order, until it returns
 * non-zero; returns that, 0, or a negative errno. No directory of claims is 0, too. */
int claims_each(const struct claims_places *places,
		int (*each)(void *arg, const char *uid, const char *name), void *arg);
