/* Critical errors of GPUs, by NVML's events. NVIDIA numbers such errors as XIDs. */
#pragma once

#include <stdbool.h>

#include "vgpu_region.h"

/* The XIDs that leave a GPU healthy, in addition to those that programs cause. */
#define XIDS_MAX 1024
struct xids_ignored {
	bool all;
	bool xid[XIDS_MAX];
};

/* Adds the XIDs that a text names: numbers below XIDS_MAX with commas between them, or "all".
 * Returns false if it is no such text. */
bool xids_ignore(struct xids_ignored *ignored, const char *text);

/* Whether the XID leaves a GPU healthy: it is ignored, or programs cause it, by NVIDIA's
 * catalogue, and the GPU keeps working for others. */
bool xids_is_ignored(const struct xids_ignored *ignored, unsigned xid);

struct xids;

/* library: NVML's handle, after nvmlInit. Returns NULL if NVML has no such events, or without
 * memory. */
struct xids *xids_open(void *library);
void xids_close(struct xids *xids); /* accepts NULL */

/* Begins to listen to the GPU with that UUID. Returns whether that works; GPUs of old
 * architectures have no events. */
bool xids_listen(struct xids *xids, const char *uuid);

/* Reads the next error since xids_listen without waiting: the GPU's UUID and the XID. Returns
 * false if there is none. */
bool xids_next(struct xids *xids, char ret_uuid[VGPU_UUID_LEN], unsigned *ret_xid);
