/* What a region says, at one look: for those who print it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "region.h"
#include "vgpu_region.h"

/* What a process has of one device, bytes: struct vgpu_hami_usage's fields of these names. */
struct sight_held {
	uint64_t context, module, data, offset, total;
};

struct sight_process {
	unsigned slot;
	int pid;                /* in its own pid namespace */
	int hostpid;            /* 0 when not known */
	uint64_t pid_namespace; /* inode of the one that `pid` is of, 0 when not known */
	const char *state;      /* "running", "paused", "dying" or "dead" */
	struct sight_held held[VGPU_DEVICES_MAX];
};

/* A process that has begun to exit: its slot is empty, and it may be on a GPU yet. */
struct sight_exiting {
	int pid; /* in its own pid namespace */
	uint64_t pid_namespace;
};

struct sight_device {
	char uuid[VGPU_UUID_LEN + 1]; /* printable ASCII, whatever the file has */
	uint64_t used_bytes;          /* by the ledger: region_shown */
	uint64_t limit_bytes;         /* 0 for none */
	unsigned cores_pct;           /* the limit, or what is assured; 0 for none */
	unsigned cores_most_pct;      /* as a policy has it */
	uint64_t burst_ns;            /* as a policy has it */
	/* GPU time that the slice has taken since the region was made, ns, as far as it is counted:
	 * while it has a compute limit. Without what was handed over and cannot be over yet. Only
	 * the difference of two looks means something, modulo 2^64. */
	uint64_t done_ns;
	/* How the pacer throttled it: struct vgpu_region_device's and vgpu_region_bucket's figures,
	 * any of which may be anything in a file that others write. */
	uint64_t throttled;    /* how often its bucket was shut */
	uint64_t throttled_ns; /* for how long, with the present time while it is */
	uint64_t held;         /* launches that had to wait for the bucket */
	uint64_t charged_ns;
	int64_t corrected_ns;
	uint64_t turn_ns;               /* what it paid for turns among slices */
	struct vgpu_region_waits turns; /* its turns, and its waits for them */
	unsigned refused;               /* allocations refused for want of room, modulo 2^32 */
	unsigned gang_members; /* living processes whose work on it is in the slice's gang */
};

/* The slice's gang; and a gang of several slices, as far as this one's region says. */
struct sight_gang {
	unsigned members; /* the sum over devices */
	uint64_t used_ns; /* for how long any of them had work in flight */
	bool shut;
	unsigned joint_processes; /* the slice's living processes in a gang of several slices */
	uint64_t joint_used_ns;   /* what that gang used while the slice was in it */
};

struct sight {
	uint64_t key;                     /* region_key: what tells the slice from others */
	uint64_t file_device, file_inode; /* of the region's file */
	unsigned version, hami_major, hami_minor;
	int lock_slot; /* who had the lock when it was looked at, or -1 */
	unsigned takeovers;
	bool lifted;        /* HAMi's monitor has lifted the compute limit (utilization_switch 0) */
	bool paused;        /* vgpu pause has paused the slice */
	bool blocked;       /* HAMi's monitor lets nothing be launched (recent_kernel below 0) */
	int64_t launched_s; /* of the last launch, unix seconds, true to about one; 0: never */
	struct sight_gang gang;
	unsigned device_count;
	struct sight_device device[VGPU_DEVICES_MAX];
	unsigned process_count;
	struct sight_process *process; /* the caller's: VGPU_SLOTS_MAX of them */
	unsigned exiting_count;
	struct sight_exiting *exiting; /* likewise; NULL: they are not looked for */
};

/* Looks once, without the lock: figures are each true, and together to within one change in
 * progress. ret_sight->process and ret_sight->exiting are set by the caller. */
void sight_take(struct region *region, struct sight *ret_sight);

/* Whether the process has anything of the device. */
bool sight_holds(const struct sight_process *process, unsigned device);
