/* The kubelet's answer of pod resources, v1.ListPodResourcesResponse: which container of which pod
 * has which devices. */
#pragma once

#include "pod.h"
#include "protobuf.h"

/* An ID as the answer has it, which may have any bytes, and whose it is. */
typedef void pod_resources_found(void *arg, const char *id, size_t len,
				 const struct pod_names *names);

/* Calls found for each ID of a device. Names that are too long or have a NUL are empty, and those
 * that no kubelet may say are as they are (pod_names_are_good). 0, or -EBADMSG: what was found
 * before stays found. */
int pod_resources_each(struct pb_message answer, pod_resources_found *found, void *arg);
