/* Which devices pods have, as the kubelet's socket for pod resources says: asked now and then, and
 * kept for a while. */
#pragma once

#include "bytes.h"
#include "grpc.h"
#include "loop.h"

struct in_use;

/* Asks from now on. looked is called after each look: with the IDs of all devices that pods had in
 * the last grace_s seconds, a string after the other, with their NULs; or NULL where that is not
 * known, or not for so long. NULL with a fault. */
struct in_use *in_use_begin(struct loop *loop, const char *socket, unsigned grace_s,
			    void (*looked)(void *arg, const struct bytes *ids), void *arg,
			    struct fault *fault);
void in_use_end(struct in_use *in_use); /* also of NULL */

/* The kubelet was started again, and may not know its pods yet: what was known counts no more. */
void in_use_forget(struct in_use *in_use);
