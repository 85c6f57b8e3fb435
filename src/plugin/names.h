/*
 * Writes down which container of which pod each container's directory is of (pod.h), as the
 * kubelet's socket for pod resources says: asked when a container starts, and now and then as long
 * as a name is missing. What is written once stays: a directory is of one container for ever.
 */
#pragma once

#include "fault.h"
#include "loop.h"

struct names;

/* Asks on that socket, for the directories below state (containers.h), which stay the caller's.
 * NULL with a fault. */
struct names *names_begin(struct loop *loop, const char *socket, const char *state,
			  struct fault *fault);
void names_end(struct names *names); /* also of NULL */

/* A container is about to start: asks, if a name is missing. */
void names_ask(struct names *names);
