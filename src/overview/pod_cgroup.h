/*
 * The pods of slices whose makers have not written them down (pod.h), by the control groups of the
 * slices' processes. The control group of a pod has the pod's UID in its name, and that of a
 * container the container's ID. The kubelet's directory of links to logs has an entry
 * POD_NAMESPACE_CONTAINER-ID.log for each container of the node.
 */
#pragma once

#include "overview.h"

#define POD_CGROUP_LINKS_DIR "/var/log/containers"
#define POD_CGROUP_ID_LEN    64 /* hexadecimal digits */

struct pod_cgroup {
	char uid[POD_UID_LEN + 1];
	char id[POD_CGROUP_ID_LEN + 1]; /* "": not known */
};

/* Finds the pod in the text of a file /proc/PID/cgroup. Returns false, and leaves *ret_group as it
 * is, if there is none. */
bool pod_cgroup_parse(const char *text, struct pod_cgroup *ret_group);

/* Reads the name of an entry of the directory of links. Returns false if the entry is not of the
 * container with that ID, or its names are not good. */
bool pod_cgroup_read_link(const char *entry, const char *id, struct pod_names *ret_names);

/* Fills in `pods` of the slices of SLICES_KUBERNETES and SLICES_CLAIM that have none, by their
 * living processes. A container without an entry in the directory has the pod's UID in place of the
 * pod's name, and "" for the other names. */
void pod_cgroup_name(struct overview *overview, const char *links);
