/*
 * The part of a ResourceClaim (resource.k8s.io/v1) that this driver reads: which of its devices
 * were allocated, and how much of each. Only status.allocation counts, which the scheduler
 * writes. The claim's spec, which its author writes, changes no limit.
 *
 *   {"metadata": {"namespace": …, "name": …, "uid": …},
 *    "status": {"allocation": {"devices": {"results": [
 *      {"request": "gpu", "driver": "gpu.vgpu.dev", "pool": "node-1", "device": "gpu-51300000-…",
 *       "shareID": …, "consumedCapacity": {"memory": "8Gi", "cores": "30"}}]}}}}
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

#define CLAIM_DEVICES_MAX 32  /* the API's limit for the results of a claim */
#define CLAIM_NAME_LEN    254 /* of a DNS subdomain, with its NUL */
#define CLAIM_LABEL_LEN   64  /* of a DNS label, with its NUL */

/* The names by which the kubelet identifies a claim. */
struct claim_id {
	char namespace[CLAIM_LABEL_LEN];
	char name[CLAIM_NAME_LEN];
	char uid[CLAIM_LABEL_LEN];
};

/* A claim's share of one device. */
struct claim_device {
	char request[CLAIM_LABEL_LEN]; /* without the subrequest's name */
	char pool[CLAIM_NAME_LEN];
	char device[CLAIM_LABEL_LEN];
	char share[CLAIM_LABEL_LEN]; /* the API's shareID, or "" */
	uint64_t memory_bytes;       /* 0: all of it */
	unsigned cores_pct;          /* 0: all of it */
};

struct claim {
	unsigned count;
	struct claim_device device[CLAIM_DEVICES_MAX];
};

/* Whether the ID's parts are DNS names, which are safe in paths of the API server and of the
 * file system. */
bool claim_id_is_good(const struct claim_id *id);

/* Reads the claim with that ID, and the devices that are allocated to it from the driver.
 * Returns 0, or a negative errno with a fault. -EBADMSG: the text is no ResourceClaim of that
 * name. -ESTALE: the claim of that name has another UID. -ENODATA: nothing is allocated from
 * this driver. -EINVAL: the allocation is not one that this driver could give. */
int claim_parse(const char *text, size_t len, const struct claim_id *id, const char *driver,
		struct claim *ret_claim, struct fault *fault);

/* Reduces a text that claim_parse accepts to the part that it reads, in the same form. The
 * caller frees the result; NULL without memory. */
char *claim_excerpt(const char *text, size_t len, const char *driver);
