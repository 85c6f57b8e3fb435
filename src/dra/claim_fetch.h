/* A ResourceClaim as the API server has it. */
#pragma once

#include "api_server.h"
#include "claim.h"

/* Asks the API server for the claim of that namespace and name, and adds its answer to ret_text. 0,
 * or a negative errno with a fault: -ENOENT, the server says that it has no such claim; -EIO, the
 * server does not answer, or not yet; -EACCES, the server refuses to say. */
int claim_fetch(struct api_server *server, const struct claim_id *id, struct bytes *ret_text,
		struct fault *fault);
