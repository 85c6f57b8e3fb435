/*
 * Which containers of which pods use a slice: a file on the host with a line
 *
 *   NAMESPACE/POD/CONTAINER
 *
 * for each of them, in order. The parts have the characters of Kubernetes' names: a to z, 0 to 9,
 * "-" and ".". A tenant chooses the parts, and cannot write the file. A file with anything else in
 * it is passed over.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "fault.h"

/* With their NULs, as long as Kubernetes permits. */
struct pod_names {
	char name_space[64], pod[254], container[64];
};

#define POD_FILE      "pod" /* in a directory that is of one slice */
#define POD_LINE_LEN  (sizeof(struct pod_names))
#define POD_USERS_MAX 16 /* of a slice that more containers use, the first ones are known */

/* The containers that use a slice, in the order of pod_compare, each of them once. */
struct pod_users {
	unsigned count;
	struct pod_names user[POD_USERS_MAX];
};

#define POD_UID_LEN        36 /* 8-4-4-4-12 hexadecimal digits */
#define POD_STATIC_UID_LEN 32 /* digits alone: a pod that the kubelet has from a file */

/* Whether the text of that length can be a pod's UID. */
bool pod_is_uid(const char *text, size_t len);

/* Whether all three can be names of Kubernetes'. */
bool pod_names_are_good(const struct pod_names *names);

/* "NAMESPACE/POD/CONTAINER" into buf, of POD_LINE_LEN bytes, which is returned. A namespace or a
 * container that is "" is left out, with its slash. */
char *pod_line(const struct pod_names *names, char *buf);

/* Less than 0, 0, or more than 0, by the namespace, then the pod, then the container. */
int pod_compare(const struct pod_names *one, const struct pod_names *other);

/* Adds the container. Names that are not good are left out. */
void pod_add(struct pod_users *users, const struct pod_names *names);

/* Adds a container of which only the pod's UID is known: the UID stands for the pod's name, and the
 * other names are "". Text that is no UID is left out. */
void pod_add_uid(struct pod_users *users, const char *uid);

/* Either may be NULL: not known. */
bool pod_users_are_same(const struct pod_users *one, const struct pod_users *other);

/* Of each of the three names the one that all users have, and "" where they differ. */
void pod_shared_names(const struct pod_users *users, struct pod_names *ret_names);

/* Whether there is such a file, with one user at least. */
bool pod_read(const char *dir, const char *file, struct pod_users *ret_users);

/* Makes or replaces the file. -EINVAL with a fault: there are no users. */
int pod_write(const char *dir, const char *file, const struct pod_users *users,
	      struct fault *fault);
