/* What vgpu inspect found in a region file, for those who print it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "vgpu_region.h"

/* What a process holds of one device, bytes: struct vgpu_hami_usage's fields of these names. */
struct inspect_held {
	uint64_t context, module, data, offset, total;
};

struct inspect_process {
	unsigned slot;
	int pid;           /* in its own pid namespace */
	int hostpid;       /* 0 when not known */
	const char *state; /* "running", "suspended", "dying" or "dead" */
	struct inspect_held held[VGPU_DEVICES_MAX];
};

struct inspect_device {
	char uuid[VGPU_UUID_LEN + 1]; /* printable ASCII, whatever the file has */
	uint64_t used_bytes;          /* by the ledger */
	uint64_t limit_bytes;         /* 0 for none */
	uint64_t cores_pct;           /* 0 for none */
};

struct inspection {
	const char *path;
	unsigned version, hami_major, hami_minor;
	int lock_slot; /* who had the lock when it was looked at, or -1 */
	unsigned takeovers;
	unsigned device_count;
	struct inspect_device device[VGPU_DEVICES_MAX];
	unsigned process_count;
	struct inspect_process *process;
	unsigned wrong_count;
	char **wrong; /* a line each */
};

/* As one JSON document on stdout: 0, or what to exit with after a line on stderr, which is so where
 * this vgpu was built without a JSON library. */
int inspect_print_json(const struct inspection *found);
