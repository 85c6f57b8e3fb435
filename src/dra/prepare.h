/*
 * Prepared claims. Each is a slice for containers of the name claim-UID, with
 *
 *   STATE/claims/UID.name       the claim's namespace and name (claims.h), written first
 *   STATE/policies/claim-UID/   its policy: the GPUs that were allocated, and how much of them
 *   REGIONS/claim-UID/shared/   the directory of its region
 *   CDI/vgpu-claim-UID.json     its CDI device, vgpu.local/slice=claim-UID
 *   STATE/claims/UID.pods       which pods use it (users.h)
 *   STATE/claims/UID.json       what the API server said of the claim (claim.h), written last
 *
 * All containers that use a claim share its slice.
 */
#pragma once

#include "api_server.h"
#include "claim.h"
#include "claims.h"
#include "gpus.h"
#include "users.h"

#define PREPARE_CDI    "/var/run/cdi"
#define PREPARE_ID_LEN 256 /* of a CDI device's name, with its NUL */

struct prepare {
	struct api_server *server;
	const struct gpus *gpus;
	const char *driver, *node;
	const char *cdi_kind; /* of the GPUs themselves, as nvidia.com/gpu; NULL: NVIDIA's runtime
			       * gets their UUIDs in the environment */
	struct users *users;  /* who asks whose pods claims are */
	const char *turns;    /* as a container_slice has it */
	/* Of prepare_open. */
	struct claims_places places;
	const char *state;
	struct bytes library_data;            /* of libvgpu.so, as it was then */
	char library[CONTAINER_DIR_LEN + 16]; /* its copy in the state directory */
};

/* Makes the directories, and the copy of the library. The strings stay the caller's. 0, or a
 * negative errno with a fault. */
int prepare_open(struct prepare *prepare, const char *state, const char *regions, const char *cdi,
		 const char *library, struct fault *fault);

void prepare_close(struct prepare *prepare); /* also of one that is not open */

/* Whether a directory that this program uses was removed, and cannot be made again: it is mounted
 * here, as in a pod, and was removed on the host. */
bool prepare_is_lost(const struct prepare *prepare);

/* Prepares the claim, or does so again, with what all claims need where that is missing. Where the
 * API server does not answer, a claim that was prepared before is prepared as it was. 0, or a
 * negative errno with a fault. */
int prepare_claim(const struct prepare *prepare, const struct claim_id *id, struct claim *ret_claim,
		  struct fault *fault);

/* Removes what was prepared; 0 also where nothing was. Called again after a failure. */
int prepare_undo(const struct prepare *prepare, const struct claim_id *id, struct fault *fault);

/* The CDI device of the claim, and that of a GPU itself; "" for the latter where the environment
 * has it. */
void prepare_claim_cdi(const struct claim_id *id, char ret_name[PREPARE_ID_LEN]);
void prepare_gpu_cdi(const struct prepare *prepare, const struct claim_device *device,
		     char ret_name[PREPARE_ID_LEN]);
