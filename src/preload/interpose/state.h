/* Whether a slice applies to this process. That is read once, at the first call that concerns a
 * driver. */
#pragma once

#include <stdbool.h>

#include "cuda_abi.h"
#include "slice.h"

enum state {
	STATE_INERT,     /* no limit applies: every call goes to the driver unchanged */
	STATE_ENFORCING, /* a slice applies */
	STATE_REFUSED, /* a slice applies and cannot be enforced; one line on stderr has said why */
};

/* Reads the policy and the environment at the first call; an atomic load afterwards. */
enum state state_get(void);

/* The slice; valid while state_get() is STATE_ENFORCING. */
const struct slice *state_slice(void);
/* Gives the slice its changed policy (slice_renew). Only one thread may call it at a time. */
void state_renew_slice(const struct policy *policy);

/*
 * Attaches the process to its slice's region, if the driver is initialised and the process is not
 * attached yet. CUDA_SUCCESS: the call may proceed, and *ret_attached says whether limits apply to
 * it. Anything else is the answer to the application.
 */
CUresult state_attach(bool *ret_attached);

/* A charge has failed with -ESTALE or -EUCLEAN: the region is lost. Prints that once. All further
 * calls of CUDA are refused, except those that give memory back. */
void state_lose(void);

/* The GPU's UUID as the slice knows it, "GPU-…" or "MIG-…", with NUL to the end. False: the driver
 * does not say. */
bool state_device_uuid(CUdevice device, char uuid[VGPU_UUID_LEN]);
