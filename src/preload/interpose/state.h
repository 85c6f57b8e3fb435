/* What this process is to the library: read once, at the first thing that concerns a driver. */
#pragma once

#include <stdbool.h>

#include "cuda_abi.h"
#include "slice.h"

enum state {
	STATE_INERT,     /* no slice is asked for: every call is the driver's own */
	STATE_ENFORCING, /* there is one */
	STATE_REFUSED,   /* there is one, and it cannot be enforced: said once on stderr */
};

/* Reads the policy and the environment at the first call; an atomic load afterwards. */
enum state state_get(void);

/* The slice; valid while state_get() is STATE_ENFORCING. */
const struct slice *state_slice(void);
/* Its policy has changed: slice_renew. The caller serialises. */
void state_renew_slice(const struct policy *policy);

/*
 * Whether the process is attached to its slice's region, now that the driver is initialised:
 * attaches it at the first call. CUDA_SUCCESS: go on; then *ret_attached tells whether there is a
 * slice to keep to. Anything else is what the application is told.
 */
CUresult state_attach(bool *ret_attached);

/* A charge has failed with -ESTALE or -EUCLEAN: the region is gone. Says so, once, and refuses CUDA
 * from now on, but for giving memory back. */
void state_lose(void);

/* The GPU's UUID as the slice knows it, "GPU-…" or "MIG-…", with NUL to the end. False: the driver
 * does not say. */
bool state_device_uuid(CUdevice device, char uuid[VGPU_UUID_LEN]);
