/*
 * The pods of HAMi's containers. A container's directory is called POD-UID_CONTAINER, and the
 * kubelet's directory of logs has an entry NAMESPACE_NAME_UID for each pod of the node. The two
 * together tell the pod's namespace and name, so the API server is not asked.
 */
#pragma once

#include "slices.h"

#define POD_LOGS_DIR "/var/log/pods"

/*
 * Fills in `pods` of the listed slices of SLICES_HAMI, from the directory of logs. If a UID has no
 * entry there, or the directory cannot be read, `pods` has the container's name, the UID as the
 * pod's name, and "" for the namespace. A container's directory whose name has no UID, or no name
 * of Kubernetes after it, has no pod. Then `pods` stays NULL, as it does without memory.
 */
void pod_logs_name(struct slices *slices, const char *logs);
