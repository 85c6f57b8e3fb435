/*
 * Which pod a container of HAMi's is of. Its region's directory has the pod's UID alone; the
 * kubelet's directory of logs has an entry NAMESPACE_NAME_UID for each pod, which needs no question
 * to the API server.
 */
#pragma once

#include <stdbool.h>

#define PODS_LOGS "/var/log/pods"

struct pods_one {
	char name_space[64], name[254], container[64];
	bool found; /* else the name is the pod's UID, and the namespace "" */
};

/* Of a container that is called UID_CONTAINER, or so and "/" and a file's name. */
void pods_find(const char *logs, const char *container, struct pods_one *ret_one);
