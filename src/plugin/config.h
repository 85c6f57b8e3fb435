/*
 * What /etc/vgpu/device-plugin.yaml says, in the words of NVIDIA's device plugin where it has words
 * for it; vgpu-device-plugin(8) has the whole list.
 *
 *   version: v1
 *   flags:
 *     plugin:
 *       deviceListStrategy: envvar
 *   sharing:
 *     slices:
 *     - {name: vgpu.dev/slice-8g-30c, memory: 8Gi, cores: 30, replicas: 4}
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"
#include "vgpu_region.h"

#define CONFIG_PATH         "/etc/vgpu/device-plugin.yaml"
#define CONFIG_SLICES_MAX   32
#define CONFIG_REPLICAS_MAX 256
#define CONFIG_NAME_LEN     64 /* of a name after the "/", with its NUL */

/* On which GPUs a container's slices are best. */
enum config_placement {
	CONFIG_SPREAD,   /* on those with the most slices free, each on another one */
	CONFIG_PACK,     /* on those with the fewest slices free */
	CONFIG_SAME_GPU, /* all on one */
	CONFIG_NUMA,     /* spread over GPUs of one NUMA node */
};

/* How a container gets its GPUs: any of these together. */
struct config_lists {
	bool envvar;          /* NVIDIA_VISIBLE_DEVICES has their UUIDs */
	bool volume_mounts;   /* mounts do, which a pod's own environment does not change */
	bool cdi_cri;         /* CDI's names, in the field of the kubelet's answer */
	bool cdi_annotations; /* CDI's names, in an annotation */
};

struct config_slice {
	char resource[256];         /* "vgpu.dev/slice-8g-30c" */
	char name[CONFIG_NAME_LEN]; /* what is after its "/" */
	uint64_t memory_bytes;      /* 0: no limit */
	unsigned cores_pct;         /* 0: no limit */
	unsigned cores_most_pct;    /* as in a policy */
	uint64_t burst_ns;          /* as a policy has it */
	unsigned replicas;          /* of each GPU */
	enum config_placement placement;
	bool single; /* a container gets one at most */
	/* The GPUs that are cut so: UUIDs, or indexes of NVML's. None: all of them. */
	unsigned device_count;
	char device[VGPU_DEVICES_MAX][VGPU_UUID_LEN];
};

struct config {
	struct config_lists lists;
	bool device_specs;  /* the devices' nodes are in the kubelet's answer, too */
	char cdi_kind[128]; /* "nvidia.com/gpu" */
	bool overcommit;    /* slices may be more memory than their GPU has */
	char library[256];  /* libvgpu.so, on the host */
	char turns[256];    /* a directory of the host that all containers share; "": none */
	unsigned slice_count;
	struct config_slice slice[CONFIG_SLICES_MAX];
};

/* Reads it. 0, or a negative errno with a fault that names the file, the line and what would be
 * right. */
int config_load(const char *path, struct config *ret_config, struct fault *fault);
/* The same of a text, whose file's name is for the fault. */
int config_parse(const char *name, const char *text, size_t len, struct config *ret_config,
		 struct fault *fault);
