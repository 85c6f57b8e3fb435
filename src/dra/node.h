/* Reads the node's object from the API server. */
#pragma once

#include "api_server.h"

#define NODE_UID_LEN 64

/* Reads the present UID of the node of that name. A node that is deleted and registers again
 * has another UID. Returns 0, or a negative errno with a fault. -ENOENT: there is no node of
 * that name. -EXDEV: the node is another machine. Other errors: there is no usable answer. */
int node_find(struct api_server *server, const char *name, char ret_uid[NODE_UID_LEN],
	      struct fault *fault);
