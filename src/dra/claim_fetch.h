/* Reads a ResourceClaim from the API server. */
#pragma once

#include "api_server.h"
#include "claim.h"

/* Asks the API server for the claim of that namespace and name, and adds its answer to
 * ret_text. Returns 0, or a negative errno with a fault. -ENOENT: the server has no such claim.
 * -EIO: the server does not answer, or is not ready. -EACCES: the server refuses the
 * request. */
int claim_fetch(struct api_server *server, const struct claim_id *id, struct bytes *ret_text,
		struct fault *fault);
