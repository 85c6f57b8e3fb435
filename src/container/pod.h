/*
 * Which container of which pod a container's directory on the host is of: the file DIR/pod, a line
 *
 *   NAMESPACE/POD/CONTAINER
 *
 * whose parts have the characters of Kubernetes' names: a to z, 0 to 9, "-" and ".". A tenant
 * chooses the parts, and cannot write the file. A file with anything else in it is passed over.
 */
#pragma once

#include <stdbool.h>

#include "fault.h"

#define POD_FILE "pod"

/* With their NULs, as long as Kubernetes permits. */
struct pod_names {
	char name_space[64], pod[254], container[64];
};

#define POD_LINE_LEN (sizeof(struct pod_names))

/* Whether all three can be names of Kubernetes'. */
bool pod_names_are_good(const struct pod_names *names);

/* "NAMESPACE/POD/CONTAINER" into buf, of POD_LINE_LEN bytes, which is returned. */
char *pod_line(const struct pod_names *names, char *buf);

/* Whether the directory has the file, with good names. */
bool pod_read(const char *dir, struct pod_names *ret_names);

/* Makes or replaces the file. -EINVAL with a fault: the names are not good. */
int pod_write(const char *dir, const struct pod_names *names, struct fault *fault);
