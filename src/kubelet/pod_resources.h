/* Reads the kubelet's answer about pod resources, v1.ListPodResourcesResponse. It tells which
 * container of which pod has which devices, of device plugins and of ResourceClaims. */
#pragma once

#include "pod.h"
#include "protobuf.h"

#define POD_RESOURCES_SOCKET "/var/lib/kubelet/pod-resources/kubelet.sock"
#define POD_RESOURCES_LIST   "/v1.PodResourcesLister/List"

enum pod_resources_kind {
	POD_RESOURCES_DEVICES, /* the IDs of a device plugin's devices */
	POD_RESOURCES_CDI,     /* the CDI devices of a ResourceClaim, as "vendor.com/gpu=gpu0" */
};

/* Called for an ID, which may have any bytes, and the container that has it. */
typedef void pod_resources_found(void *arg, const char *id, size_t len,
				 const struct pod_names *names);

/* Calls found for each ID of that kind. A name that is too long or has a NUL is passed as "".
 * Other names are passed as they are, even if Kubernetes does not allow them
 * (pod_names_are_good). Returns 0; or -EBADMSG, possibly after some calls. */
int pod_resources_each(struct pb_message answer, enum pod_resources_kind kind,
		       pod_resources_found *found, void *arg);
