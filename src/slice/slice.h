/*
 * The slice of this process: its GPUs, the bytes and percent of each, and the path of its region.
 * They are read once, from these sources, in this order:
 *
 *   1. a policy: a directory that the tenant cannot write, with a file for each GPU (policy.h): the
 *      one at SLICE_POLICY_DIR, which is mounted into containers, and the one that VGPU_POLICY
 *      names, which `vgpu run` makes. If there are both, the stricter of each value holds.
 *   2. the region, if there is one already: the component quota looks there, this one does not.
 *   3. the environment, by HAMi's names. It can lower what a policy says, never lift it.
 *
 * Limits belong to a GPU's UUID, never to an index: CUDA_VISIBLE_DEVICES renumbers. HAMi's
 * CUDA_DEVICE_MEMORY_LIMIT_<i> means the i-th of NVIDIA_VISIBLE_DEVICES where that lists UUIDs,
 * else the GPU with index i in the container's own order, which is NVML's.
 *
 * A value that does not parse is an error, never "no limit".
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"
#include "policy.h"
#include "vgpu_region.h"

#define SLICE_POLICY_DIR      "/etc/vgpu/policy"
#define SLICE_GANGS_DIR       "/run/vgpu/gangs"      /* VGPU_GANGS names another */
#define SLICE_TURNS_DIR       "/run/vgpu/turns"      /* VGPU_TURNS names another */
#define SLICE_GANGS_MOUNT     "/run/vgpu-host/gangs" /* in a container that has it mounted */
#define SLICE_TURNS_MOUNT     "/run/vgpu-host/turns" /* likewise */
#define SLICE_SOCKET_DIR      "/run/vgpud"           /* on the host, and in containers */
#define SLICE_SOCKET_NAME     "vgpud.sock"
#define SLICE_SOCKET          SLICE_SOCKET_DIR "/" SLICE_SOCKET_NAME /* VGPU_SOCKET names another */
#define SLICE_REGION_DEFAULT  "/tmp/cudevshr.cache"                  /* HAMi-core's */
#define SLICE_REGION_HAMI_DIR "/usr/local/vgpu"                      /* HAMi's, in its containers */

/* The stricter of two limits, of which 0 is none. */
static inline uint64_t slice_stricter(uint64_t a, uint64_t b)
{
	return a == 0 || (b != 0 && b < a) ? b : a;
}

/* The most that a compute limit allows: while no other slice wants the GPU, or all the time. */
static inline unsigned slice_cores_most(unsigned pct, unsigned most_pct)
{
	return most_pct ? most_pct : pct;
}

/* When compute limits hold that no policy gives. */
enum slice_cores {
	SLICE_CORES_DEFAULT, /* while the monitor does not lift them */
	SLICE_CORES_FORCE,
	SLICE_CORES_DISABLE,
};

/* Limits from HAMi's environment: 0 for none. */
struct slice_env {
	uint64_t memory_bytes[VGPU_DEVICES_MAX]; /* by index, the general value where it has none */
	unsigned cores_pct[VGPU_DEVICES_MAX];
	unsigned visible_count; /* GPUs that NVIDIA_VISIBLE_DEVICES lists by UUID; 0 if it does not
				 */
	char visible[VGPU_DEVICES_MAX][VGPU_UUID_LEN];
	enum slice_cores cores; /* GPU_CORE_UTILIZATION_POLICY */
	int priority;           /* CUDA_TASK_PRIORITY */
	int oversubscribe;      /* CUDA_OVERSUBSCRIBE: 1 on, 0 off, -1 not set */
};

#define SLICE_PATH_LEN 4096

struct slice {
	bool configured;     /* false: no policy, no limit, no region to find: be inert */
	bool has_policy;     /* then GPUs that it does not list are not in the slice */
	bool has_own_policy; /* in policy_dir: it stays, whatever VGPU_POLICY names */
	struct policy policy;
	char policy_dir[SLICE_PATH_LEN], policy_named[SLICE_PATH_LEN]; /* where it is read from */
	bool oversubscribe; /* memory that does not fit on the card may lie in the host's memory */
	struct slice_env env;
	char gangs_dir[SLICE_PATH_LEN]; /* where the files of gangs of several slices are */
	char turns_dir[SLICE_PATH_LEN]; /* where those of turns are; "": there are none */
	char socket[SLICE_PATH_LEN]; /* vgpud's, which may not be there; "": its path is too long */
	char region_path[4096];
	const char *region_from; /* the source of that path, for error lines */
};

/*
 * Reads all of it. Returns 0, or a negative errno with a fault that names the file or variable, the
 * value, and a correct value. Then the slice must be refused, not ignored. policy_dir stands for
 * SLICE_POLICY_DIR; NULL is that. The caller serialises. `configured` is true as soon as there is a
 * policy, any limit in the environment, or an explicit CUDA_DEVICE_MEMORY_SHARED_CACHE whose file
 * exists. It is also true if there is a region at a well-known path: SLICE_REGION_DEFAULT, or the
 * only *.cache in SLICE_REGION_HAMI_DIR. So an empty environment lifts no limit. Nor does
 * CUDA_DEVICE_MEMORY_SHARED_CACHE where it leads nowhere; where there is a *.cache in
 * SLICE_REGION_HAMI_DIR, it counts only if it names a file there.
 */
int slice_load(const char *policy_dir, struct slice *ret_slice, struct fault *fault);

/* Where the files of turns should be, by the environment or by default. turns_dir is empty if this
 * is no directory that the process may write. */
const char *slice_turns_path(void);

/* Where vgpud's socket should be, by the environment or by default. */
const char *slice_socket_path(void);

/* Whether limits depend on an index that only NVML's order can give (they differ, and
 * NVIDIA_VISIBLE_DEVICES lists no UUIDs). */
bool slice_needs_order(const struct slice *slice);

/* The limits of a GPU, by their source; 0: none. Its region may say something, too. */
struct slice_limits {
	const struct policy_device
		*policy; /* in the slice, which slice_renew changes; NULL: none */
	uint64_t env_bytes;
	unsigned env_pct;
};

/*
 * The GPU's limits. index is its place in NVML's order, or -1 when not known: then the strictest of
 * the environment's values counts. Returns false if the GPU is not in the slice.
 */
bool slice_limits(const struct slice *slice, const char *uuid, int index,
		  struct slice_limits *ret_limits);

/* The policy's percent of now. */
unsigned slice_policy_cores(const struct slice_limits *limits);
/* Likewise the most while no other slice wants the GPU, as in a policy. */
unsigned slice_policy_cores_most(const struct slice_limits *limits);
/* Likewise its burst_ns; 0: it has none. */
uint64_t slice_policy_burst(const struct slice_limits *limits);

/*
 * The bytes that the slice may hold of the GPU, 0 for no limit: the strictest of three limits. They
 * are the policy's present limit, the region's present limit (`region`), and the environment's. The
 * region was made with the limit region_first. The environment's limit counts only if it is below
 * region_first. So a change of the region's limit applies to all processes, except those whose
 * environment asked for less.
 */
uint64_t slice_memory(const struct slice_limits *limits, uint64_t region_first, uint64_t region);

/* The directory of the slice's policy, for messages: SLICE_POLICY_DIR where there is a policy in
 * it, else the one that VGPU_POLICY names. */
const char *slice_policy_place(const struct slice *slice);

/* A number that changes when the policies' files change; 0 where there is no policy. It also
 * changes from look to look while one of the files was written within the last 100 ms. The call
 * takes some us. */
uint64_t slice_policy_stamp(const struct slice *slice);
/* Reads the policies of a slice that has one again. Errors as slice_load's, also for one that was
 * there and is gone. The caller serialises. */
int slice_read_policy(const struct slice *slice, struct policy *ret_policy, struct fault *fault);

/* Takes over the policy's present setting for gangs, and the limits of the GPUs that the policy
 * still lists, each by one store. A GPU that it lists no more keeps the limits that it had. The
 * caller serialises; others read meanwhile. */
void slice_renew(struct slice *slice, const struct policy *policy);
/* The policy's present setting for gangs; any thread may ask. */
struct policy_gang slice_gang(const struct slice *slice);

/* Whether a GPU may be there and not in the slice: there is a policy, or NVIDIA_VISIBLE_DEVICES
 * lists UUIDs. */
bool slice_narrows(const struct slice *slice);

/*
 * Whether the slice shows the GPU, or MIG instance, with that UUID. The policy lists it, or, where
 * there is no policy, NVIDIA_VISIBLE_DEVICES does. True if that variable lists no UUIDs. To be
 * shown and to be let in are two things: slice_limits, which knows the policy alone, decides the
 * latter.
 */
bool slice_shows(const struct slice *slice, const char *uuid);
