/*
 * The configuration of the simulated machine, from the environment. Both libraries read it, each
 * for itself. The shared state makes sure that all processes have the same machine.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SIM_GPUS_MAX = 16,
	SIM_UUID_TEXT = 41, /* "GPU-" and 36 characters, with the NUL */
	SIM_MULTIPROCESSORS = 132,
	SIM_THREADS_PER_MULTIPROCESSOR = 2048,
	SIM_COMPUTE_MAJOR = 9,
	SIM_COMPUTE_MINOR = 0,
};

#define SIM_GPU_NAME "vgpu simulated GPU"

enum sim_lazy {
	SIM_LAZY_NEVER,    /* when it is loaded */
	SIM_LAZY_LAUNCHES, /* when one of its functions is first launched */
	SIM_LAZY_NODES,    /* or becomes a node of a graph */
};

struct sim_config {
	unsigned count;
	uint64_t total_bytes[SIM_GPUS_MAX];
	int driver_version;        /* the answer of cuDriverGetVersion: 13000 is 13.0 */
	uint64_t context_bytes;    /* a context adds this to NVML's figure for its process */
	uint64_t module_bytes;     /* a module or library adds this */
	bool ipc_counts;           /* an IPC handle that is opened again has the same address */
	enum sim_lazy module_lazy; /* when a module without variables adds it */
	uint64_t copy_mb_s;        /* speed of fills and copies in a device: 10^6 bytes/s */
	uint64_t host_copy_mb_s;   /* speed of copies from and to the host; 0: they take no time */
	uint64_t page_mb_s;        /* speed at which managed memory moves; 0: it does not move */
	char state_path[4096];
};

/*
 * The configuration, read at the first call. NULL if the environment makes no sense: a line on
 * stderr has said so.
 */
const struct sim_config *config_get(void);

/* GPU-51300000-0000-4000-8000-00000000000i. */
void config_uuid_bytes(unsigned gpu, unsigned char ret_bytes[16]);
void config_uuid_text(unsigned gpu, char ret_text[SIM_UUID_TEXT]);
