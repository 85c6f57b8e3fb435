/*
 * Prepares claims. A prepared claim is a slice for containers, of the name claim-UID, with
 *
 *   STATE/claims/UID.name       the claim's namespace and name (claims.h), written first
 *   STATE/policies/claim-UID/   its policy: the GPUs that were allocated, and how much of them
 *   REGIONS/claim-UID/shared/   the directory of its region
 *   CDI/vgpu-claim-UID.json     its CDI device, vgpu.local/slice=claim-UID
 *   STATE/claims/UID.pods       the pods that use it (users.h)
 *   STATE/claims/UID.json       the API server's answer about the claim (claim.h), written last
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
	/* CDI kind of whole GPUs, such as nvidia.com/gpu; NULL: NVIDIA's runtime gets the
	 * GPUs' UUIDs in the environment */
	const char *cdi_kind;
	struct users *users; /* is notified of each prepared claim */
	const char *turns;   /* as in struct container_slice */
	/* Set by prepare_open. */
	struct claims_places places;
	const char *state;
	struct bytes library_data;            /* of libvgpu.so, as prepare_open read it */
	char library[CONTAINER_DIR_LEN + 16]; /* its copy in the state directory */
};

/* Makes the directories and the copy of the library. The caller has set the fields above. The
 * strings must live as long as *prepare. Returns 0, or a negative errno with a fault. */
int prepare_open(struct prepare *prepare, const char *state, const char *regions, const char *cdi,
		 const char *library, struct fault *fault);

void prepare_close(struct prepare *prepare); /* accepts one that is not open */

/* Whether a directory that this program uses was removed and cannot be made again. That is so
 * if the directory is mounted here, as in a pod, and was removed on the host. */
bool prepare_is_lost(const struct prepare *prepare);

/* Prepares the claim, or prepares it again, and makes what all claims need if that is missing.
 * While the API server does not answer, a claim that was prepared before is prepared from the
 * kept answer. Returns 0, or a negative errno with a fault. */
int prepare_claim(const struct prepare *prepare, const struct claim_id *id, struct claim *ret_claim,
		  struct fault *fault);

/* Removes everything that was prepared for the claim. Returns 0, also if there was nothing; or
 * a negative errno with a fault, and the caller calls again later. */
int prepare_undo(const struct prepare *prepare, const struct claim_id *id, struct fault *fault);

/* The name of the claim's CDI device, and that of a whole GPU; the latter is "" if cdi_kind is
 * NULL. */
void prepare_claim_cdi(const struct claim_id *id, char ret_name[PREPARE_ID_LEN]);
void prepare_gpu_cdi(const struct prepare *prepare, const struct claim_device *device,
		     char ret_name[PREPARE_ID_LEN]);
