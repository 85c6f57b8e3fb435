/* Critical errors of GPUs, which NVIDIA numbers as XIDs: NVML's events of them. */
#pragma once

#include <stdbool.h>

#include "vgpu_region.h"

/* The XIDs that leave a GPU healthy, beside those that programs cause. */
#define XIDS_MAX 1024
struct xids_ignored {
	bool all;
	bool xid[XIDS_MAX];
};

/* Adds what a text names: numbers below XIDS_MAX with commas between them, or "all". Whether it is
 * such a text. */
bool xids_ignore(struct xids_ignored *ignored, const char *text);

/* Also of an XID that programs cause, by NVIDIA's catalogue: the GPU works on for others. */
bool xids_is_ignored(const struct xids_ignored *ignored, unsigned xid);

struct xids;

/* library: NVML, started. NULL where it has no such events, or there is no memory. */
struct xids *xids_open(void *library);
void xids_close(struct xids *xids); /* also of NULL */

/* Whether the GPU with that UUID will be listened to. GPUs of old architectures have no events. */
bool xids_listen(struct xids *xids, const char *uuid);

/* The next error since xids_listen, without waiting: its GPU and number. false if there is none. */
bool xids_next(struct xids *xids, char ret_uuid[VGPU_UUID_LEN], unsigned *ret_xid);
