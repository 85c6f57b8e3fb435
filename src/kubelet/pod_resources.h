/* The kubelet's answer of pod resources, v1.ListPodResourcesResponse: which container of which pod
 * has which devices, of device plugins and of ResourceClaims. */
#pragma once

#include "pod.h"
#include "protobuf.h"

#define POD_RESOURCES_SOCKET "/var/lib/kubelet/pod-resources/kubelet.sock"
#define POD_RESOURCES_LIST   "/v1.PodResourcesLister/List"

enum pod_resources_kind {
	POD_RESOURCES_DEVICES, /* the IDs of a device plugin's devices */
	POD_RESOURCES_CDI,     /* the CDI devices of a ResourceClaim, as "vendor.com/gpu=gpu0" */
};

/* An ID as the answer has it, which may have any bytes, and whose it is. */
typedef void pod_resources_found(void *arg, const char *id, size_t len,
				 const struct pod_names *names);

/* Calls found for each ID of that kind. Names that are too long or have a NUL are empty, and those
 * that no kubelet may say are as they are (pod_names_are_good). 0, or -EBADMSG: what was found
 * before stays found. */
int pod_resources_each(struct pb_message answer, enum pod_resources_kind kind,
		       pod_resources_found *found, void *arg);
