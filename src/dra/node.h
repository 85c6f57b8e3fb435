/* The node as the API server has it. */
#pragma once

#include "api_server.h"

#define NODE_UID_LEN 64

/* Reads the UID of the node of that name, as it is at this moment: a node that is deleted, and
 * registers again, has another one. 0, or a negative errno with a fault: -ENOENT, there is no node
 * of that name; -EXDEV, it is another machine than this one; or there is no answer. */
int node_find(struct api_server *server, const char *name, char ret_uid[NODE_UID_LEN],
	      struct fault *fault);
