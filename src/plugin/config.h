/*
 * The settings in /etc/vgpu/device-plugin.yaml. Settings that NVIDIA's device plugin has too
 * have its names. vgpu-device-plugin(8) has the whole list.
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
#define CONFIG_NAME_LEN     64 /* length of a name after the "/", with its NUL */

/* The GPUs that are preferred for a container with several slices. */
enum config_placement {
	CONFIG_SPREAD,   /* GPUs with the most free slices, and a different one for each slice */
	CONFIG_PACK,     /* GPUs with the fewest free slices */
	CONFIG_SAME_GPU, /* one GPU for all slices */
	CONFIG_NUMA,     /* as CONFIG_SPREAD, over GPUs of one NUMA node */
};

/* The ways by which a container gets its GPUs. Several may be used at once. */
struct config_lists {
	bool envvar;          /* NVIDIA_VISIBLE_DEVICES has their UUIDs */
	bool volume_mounts;   /* mounts have them, which a pod's own environment cannot change */
	bool cdi_cri;         /* CDI's names, in the field of the kubelet's answer */
	bool cdi_annotations; /* CDI's names, in an annotation */
};

struct config_slice {
	char resource[256];         /* "vgpu.dev/slice-8g-30c" */
	char name[CONFIG_NAME_LEN]; /* the part after its "/" */
	uint64_t memory_bytes;      /* 0: no limit */
	unsigned cores_pct;         /* 0: no limit */
	unsigned cores_most_pct;    /* as struct policy_device has it */
	uint64_t burst_ns;          /* as struct policy_device has it */
	unsigned replicas;          /* slices on each GPU */
	enum config_placement placement;
	bool single; /* a container may have at most one */
	/* The GPUs that have this slice: UUIDs, or NVML's indexes. None: all GPUs. */
	unsigned device_count;
	char device[VGPU_DEVICES_MAX][VGPU_UUID_LEN];
};

struct config {
	struct config_lists lists;
	bool device_specs;  /* the answer to the kubelet also has the GPUs' device nodes */
	char cdi_kind[128]; /* "nvidia.com/gpu" */
	bool overcommit;    /* the slices of a GPU may have more memory than the GPU */
	char library[256];  /* path of libvgpu.so on the host */
	char turns[256];    /* a directory on the host that all containers share; "": none */
	unsigned slice_count;
	struct config_slice slice[CONFIG_SLICES_MAX];
};

/* Reads a file of settings. Returns 0, or a negative errno with a fault that names the file,
 * the line and a correct value. */
int config_load(const char *path, struct config *ret_config, struct fault *fault);
/* Reads settings from a text. name: the file's name, for the fault. */
int config_parse(const char *name, const char *text, size_t len, struct config *ret_config,
		 struct fault *fault);
