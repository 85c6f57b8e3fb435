/*
 * A ResourceClaim (resource.k8s.io/v1), as far as this driver reads it: which of its devices were
 * allocated, and how much of them. Only status.allocation counts, which the scheduler writes.
 * The claim's spec, which its author writes, changes no limit.
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

#define CLAIM_DEVICES_MAX 32  /* the API's own limit of a claim's results */
#define CLAIM_NAME_LEN    254 /* of a DNS subdomain, with its NUL */
#define CLAIM_LABEL_LEN   64  /* of a DNS label, with its NUL */

/* By what the kubelet knows a claim. */
struct claim_id {
	char namespace[CLAIM_LABEL_LEN];
	char name[CLAIM_NAME_LEN];
	char uid[CLAIM_LABEL_LEN];
};

/* A share of a device. */
struct claim_device {
	char request[CLAIM_LABEL_LEN]; /* without the name of a subrequest */
	char pool[CLAIM_NAME_LEN];
	char device[CLAIM_LABEL_LEN];
	char share[CLAIM_LABEL_LEN]; /* what the API calls this share by, or "" */
	uint64_t memory_bytes;       /* 0: all of it */
	unsigned cores_pct;          /* 0: all of it */
};

struct claim {
	unsigned count;
	struct claim_device device[CLAIM_DEVICES_MAX];
};

/* Whether the ID's parts may stand in a path, of the API server and of the file system. */
bool claim_id_is_good(const struct claim_id *id);

/* Reads the claim with that ID, and what of it is allocated from the driver. 0, or a negative errno
 * with a fault: -EBADMSG, the text is no ResourceClaim of that name; -ESTALE, it is another claim
 * of that name; -ENODATA, nothing of it is allocated from this driver; -EINVAL, what is allocated
 * is nothing that this driver could give. */
int claim_parse(const char *text, size_t len, const struct claim_id *id, const char *driver,
		struct claim *ret_claim, struct fault *fault);

/* The part that claim_parse reads of a text that it has read, as a text of the same form, to be
 * freed. NULL without memory. */
char *claim_excerpt(const char *text, size_t len, const char *driver);
