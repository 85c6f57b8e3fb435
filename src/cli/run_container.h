/* A container in a slice of its own. */
#pragma once

#include "policy.h"
#include "request.h"

/* Whether the request can be one for a container: 0, or what to exit with after a line on stderr.
 */
int run_container_check(const struct run_request *request);

/* Makes the slice, runs the command with the slice's mounts in its command line, and removes the
 * slice. program: the command's file. Returns what to exit with. */
int run_container(const struct run_request *request, const struct policy *wanted,
		  const char *program, const char *library);
