/*
 * Writes down for each container's directory which container of which pod it belongs to
 * (pod.h). The kubelet's socket for pod resources tells this. It is asked when a container
 * starts, and every 10 seconds while a name is missing. A name that is written stays, as a
 * directory belongs to one container for ever.
 */
#pragma once

#include "fault.h"
#include "loop.h"

struct names;

/* Begins to ask on that socket, for the directories below state (containers.h). Both strings
 * must live until names_end. Returns NULL with a fault on failure. */
struct names *names_begin(struct loop *loop, const char *socket, const char *state,
			  struct fault *fault);
void names_end(struct names *names); /* accepts NULL */

/* Call it when a container is about to start. It asks if a name is missing. */
void names_ask(struct names *names);
