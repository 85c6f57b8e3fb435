#include "xids.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "nvml_library.h"
#include "size.h"

/*
 * XIDs that programs cause. 8, 43, 109: the program's work did not end, or was preempted too
 * late. 11, 13, 31, 68, 69, 137: the program did an operation that a unit of the GPU or the
 * memory protection refuses. 45: cleanup after another error. 63, 94: a memory error that was
 * contained. For each, the catalogue advises to restart the program, or nothing.
 */
static const bool of_programs[XIDS_MAX] = {
	[8] = true,  [11] = true, [13] = true, [31] = true, [43] = true,  [45] = true,
	[63] = true, [68] = true, [69] = true, [94] = true, [109] = true, [137] = true,
};

bool xids_ignore(struct xids_ignored *ignored, const char *text)
{
	char number[8];

	if (!strcmp(text, "all")) {
		ignored->all = true;
		return true;
	}
	for (;; text++) {
		size_t length = strcspn(text, ",");
		uint64_t xid;

		if (length >= sizeof(number))
			return false;
		memcpy(number, text, length);
		number[length] = '\0';
		if (number_parse(number, XIDS_MAX - 1, &xid))
			return false;
		ignored->xid[xid] = true;
		text += length;
		if (!*text)
			return true;
	}
}

bool xids_is_ignored(const struct xids_ignored *ignored, unsigned xid)
{
	return ignored->all || (xid < XIDS_MAX && (ignored->xid[xid] || of_programs[xid]));
}

/* -- NVML's events ----------------------------------------------------------------------------- */

struct xids {
	nvmlEventSet_t set;
	nvmlEventSetFree_fn *set_free;
	nvmlEventSetWait_v2_fn *wait;
	nvmlDeviceRegisterEvents_fn *listen;
	nvmlDeviceGetHandleByUUID_fn *by_uuid;
	nvmlDeviceGetUUID_fn *uuid;
};

#define FIND(library, name) ((name##_fn *)dlsym(library, #name))

struct xids *xids_open(void *library)
{
	nvmlEventSetCreate_fn *create = FIND(library, nvmlEventSetCreate);
	struct xids *xids = calloc(1, sizeof(*xids));

	if (!xids)
		return NULL;
	*xids = (struct xids){
		.set_free = FIND(library, nvmlEventSetFree),
		.wait = FIND(library, nvmlEventSetWait_v2),
		.listen = FIND(library, nvmlDeviceRegisterEvents),
		.by_uuid = FIND(library, nvmlDeviceGetHandleByUUID),
		.uuid = FIND(library, nvmlDeviceGetUUID),
	};
	if (create && xids->set_free && xids->wait && xids->listen && xids->by_uuid && xids->uuid &&
	    create(&xids->set) == NVML_SUCCESS)
		return xids;
	free(xids);
	return NULL;
}

void xids_close(struct xids *xids)
{
	if (xids)
		xids->set_free(xids->set);
	free(xids);
}

bool xids_listen(struct xids *xids, const char *uuid)
{
	nvmlDevice_t device;

	return xids->by_uuid(uuid, &device) == NVML_SUCCESS &&
	       xids->listen(device, nvmlEventTypeXidCriticalError, xids->set) == NVML_SUCCESS;
}

bool xids_next(struct xids *xids, char ret_uuid[VGPU_UUID_LEN], unsigned *ret_xid)
{
	nvmlEventData_t event;

	while (xids->wait(xids->set, &event, 0) == NVML_SUCCESS) {
		*ret_xid = (unsigned)event.eventData;
		if (event.eventType == nvmlEventTypeXidCriticalError &&
		    xids->uuid(event.device, ret_uuid, VGPU_UUID_LEN) == NVML_SUCCESS)
			return true;
	}
	return false;
}
