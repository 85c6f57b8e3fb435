/* The contents of a region at one look, for programs that print them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "region.h"
#include "vgpu_region.h"

/* Bytes of one device that a process holds: the fields of struct vgpu_hami_usage. */
struct sight_held {
	uint64_t context, module, data, offset, total;
};

struct sight_process {
	unsigned slot;
	int pid;                /* in its own pid namespace */
	int hostpid;            /* 0: not known */
	uint64_t pid_namespace; /* inode of the pid namespace of `pid`; 0: not known */
	const char *state;      /* "running", "paused", "dying" or "dead" */
	struct sight_held held[VGPU_DEVICES_MAX];
};

/* A process that has begun to exit: its slot is empty, and it may still be on a GPU. */
struct sight_exiting {
	int pid; /* in its own pid namespace */
	uint64_t pid_namespace;
};

struct sight_device {
	char uuid[VGPU_UUID_LEN + 1]; /* printable ASCII, whatever the file has */
	uint64_t used_bytes;          /* by the ledger: region_shown */
	uint64_t limit_bytes;         /* 0: none */
	unsigned cores_pct;           /* the limit, or the assured part; 0: none */
	unsigned cores_most_pct;      /* as in a policy */
	uint64_t burst_ns;            /* as in a policy */
	/* GPU time that the slice used since the region was made, ns. Counted while the slice has a
	 * compute quota, without work in flight. Only the difference of two looks has a meaning,
	 * modulo 2^64. */
	uint64_t done_ns;
	/* How the pacer throttled the slice: figures of struct vgpu_region_device and
	 * vgpu_region_bucket. Tenants can write any value there. */
	uint64_t throttled;    /* how often its bucket was shut */
	uint64_t throttled_ns; /* for how long, with the present time while it is */
	uint64_t held;         /* launches that had to wait for the bucket */
	uint64_t charged_ns;
	int64_t corrected_ns;
	uint64_t turn_ns;               /* paid for turns */
	struct vgpu_region_waits turns; /* the slice's turns, and its waits for them */
	unsigned refused;               /* allocations refused because of the quota, modulo 2^32 */
	unsigned gang_members;          /* living processes with this device in the slice's gang */
};

/* The slice's gang, and its part in a gang of several slices, by its own region. */
struct sight_gang {
	unsigned members; /* the sum over devices */
	uint64_t used_ns; /* time in which any member had work in flight */
	bool shut;
	unsigned joint_processes; /* the slice's living processes in a gang of several slices */
	uint64_t joint_used_ns;   /* what the device that was charged most paid for it */
};

struct sight {
	uint64_t looked_ns; /* time of the look, clock_steady_ns; counters are as of it */
	uint64_t key;       /* region_key: identifies the slice */
	uint64_t file_device, file_inode; /* of the region's file */
	unsigned version, hami_major, hami_minor;
	int lock_slot; /* slot of the process that held the lock; -1: none */
	unsigned takeovers;
	bool lifted;        /* HAMi's monitor has lifted the compute quota (utilization_switch 0) */
	bool paused;        /* vgpu pause has paused the slice */
	bool blocked;       /* HAMi's monitor blocks all launches (recent_kernel below 0) */
	int64_t launched_s; /* the last launch, unix seconds, exact to about one; 0: never */
	struct sight_gang gang;
	unsigned device_count;
	struct sight_device device[VGPU_DEVICES_MAX];
	unsigned process_count;
	struct sight_process *process; /* the caller's array of VGPU_SLOTS_MAX */
	unsigned exiting_count;
	struct sight_exiting *exiting; /* likewise; NULL: exiting processes are not read */
};

/* Reads the region once, without its lock. Each figure is true; two figures may differ by one
 * change in progress. The caller sets ret_sight->process and ret_sight->exiting before. */
void sight_take(struct region *region, struct sight *ret_sight);

/* Whether the process has anything of the device. */
bool sight_holds(const struct sight_process *process, unsigned device);
