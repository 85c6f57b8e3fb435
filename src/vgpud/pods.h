/*
 * Finds the pod of a container of HAMi's. The directory of a container's region has only the
 * pod's UID. The kubelet's directory of logs has an entry NAMESPACE_NAME_UID for each pod, so
 * the API server is not asked.
 */
#pragma once

#include <stdbool.h>

#define PODS_LOGS "/var/log/pods"

struct pods_one {
	char name_space[64], name[254], container[64];
	bool found; /* false: name is the pod's UID, and name_space is "" */
};

/* Finds the pod of a container that is called UID_CONTAINER, or UID_CONTAINER/FILE. logs: the
 * kubelet's directory. */
void pods_find(const char *logs, const char *container, struct pods_one *ret_one);
