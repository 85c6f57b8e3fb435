/* Finds out which devices pods have. It asks the kubelet's socket for pod resources now and
 * then, and keeps the answers for a while. */
#pragma once

#include "bytes.h"
#include "grpc.h"
#include "loop.h"

struct in_use;

/* Begins to ask, grace_s / 10 seconds apart. looked is called after each answer or failure,
 * with the IDs of all devices that pods had in the last grace_s seconds, one after the other,
 * each with a NUL. ids is NULL if that is not known for so long. Returns NULL with a fault on
 * failure. */
struct in_use *in_use_begin(struct loop *loop, const char *socket, unsigned grace_s,
			    void (*looked)(void *arg, const struct bytes *ids), void *arg,
			    struct fault *fault);
void in_use_end(struct in_use *in_use); /* accepts NULL */

/* Call it when the kubelet was started again, as it may not know its pods yet. Earlier answers
 * count no more. */
void in_use_forget(struct in_use *in_use);
