/*
 * The machine at one look: its slices with their limits and use, their processes, its GPUs, and the
 * processes on GPUs that are in no slice. For programs that print it: vgpu ps, vgpu top, vgpud.
 *
 * A region that cannot be read hides only its own slice. The figures of a region are written by its
 * tenant's processes, and serve only to be shown.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"
#include "sight.h"
#include "slices.h"
#include "usage.h"

#define OVERVIEW_COMMAND_LEN 256

enum overview_state {
	OVERVIEW_RUNNING,  /* a process of the slice lives */
	OVERVIEW_IDLE,     /* no process lives, and a `vgpu run` has the slice */
	OVERVIEW_EMPTY,    /* no process lives in a slice that vgpu run did not make */
	OVERVIEW_LEFTOVER, /* neither lives in a slice of vgpu run: the next vgpu run removes it */
	OVERVIEW_UNREADABLE, /* the region cannot be read; `why` has the reason */
};

/* The source of a slice's GPU time. */
enum overview_counter { OVERVIEW_NOBODY, OVERVIEW_REGION, OVERVIEW_NVML };

struct overview_device {
	struct sight_device seen;
	struct sight_held held; /* sums over its processes; the total is also in seen.used_bytes */
	int gpu;                /* index in usage.gpu; -1: not found */
	int cores_used_pct;     /* share of the GPU's time since the last look; -1: not known */
	enum overview_counter counter;
	int throttled_pct;   /* percent of the time since the last look in which the compute quota
			      * delayed launches; -1: not known, or no quota */
	int turn_waited_pct; /* percent of that time in which a process waited for turns, in the
			      * mean of the slice's processes; -1: not known */
};

struct overview_process {
	struct sight_process seen; /* its state is corrected by what /proc shows */
	int here;                  /* its pid in our pid namespace; 0: not known */
	bool may_be_held; /* it is dead, and whether the GPU has its memory back is unknown */
	char command[OVERVIEW_COMMAND_LEN]; /* escaped; "": not known */
};

struct overview_slice {
	struct slices_one *one;
	enum overview_state state;
	char *why;    /* for OVERVIEW_UNREADABLE; else NULL */
	uint64_t key; /* identifies the slice in a file of turns (region_key); 0: not known */
	uint64_t file_device, file_inode; /* of the region's file; 0: there is no file */
	bool paused;                      /* vgpu pause has paused it */
	bool blocked;                     /* a monitor blocks all launches */
	bool lifted;                      /* a monitor has lifted the compute quota */
	struct sight_gang gang;
	int64_t launched_s;                          /* the last launch, unix seconds; 0: never */
	uint64_t looked_ns;                          /* time of the look, clock_steady_ns */
	unsigned running, paused_count, dying, dead; /* processes by state */
	unsigned device_count;
	struct overview_device *device;
	unsigned process_count;
	struct overview_process *process;
	unsigned exiting_count;
	int *exiting; /* processes that have begun to exit: their pids in our pid namespace, or 0 */
};

/* A process on a GPU that is in none of the machine's slices. */
struct overview_stranger {
	unsigned gpu; /* index in usage.gpu */
	struct usage_process seen;
	char command[OVERVIEW_COMMAND_LEN];
};

struct overview {
	struct slices slices;
	unsigned count; /* slices that are shown */
	struct overview_slice *slice;
	unsigned left_out;       /* slices beyond most_of_tenant of their tenant */
	bool many_users;         /* the slices belong to several users */
	struct usage usage;      /* empty without NVML */
	unsigned stranger_count; /* 0 if only some slices are shown */
	struct overview_stranger *stranger;
};

struct procs;
struct usage_source;

/* The state of a program that takes overviews. Zero it, then call overview_open. */
struct overview_looker {
	char **name;                /* names of the slices to show, NULL at the end; empty: all */
	unsigned most_of_tenant;    /* slices to read of one tenant (tenants.h); 0: all */
	bool only_reads;            /* takes no lock, not even to see whether it is held (held.h) */
	const char *pod_logs;       /* the kubelet's directory of logs (pod_logs.h); NULL: what
				     * VGPU_POD_LOGS names, or else POD_LOGS_DIR */
	const char *pod_links;      /* its directory of links to logs (pod_cgroup.h); NULL: what
				     * VGPU_CONTAINER_LOGS names, or else POD_CGROUP_LINKS_DIR */
	uint64_t pods_ns;           /* when control groups were last searched; 0: never */
	struct usage_source *usage; /* NULL without NVML */
	struct fault no_usage;      /* the reason why usage is NULL */
	struct procs *procs;
};

int overview_open(struct overview_looker *looker, char **name, struct fault *fault);
void overview_close(struct overview_looker *looker);

/* Takes an overview. -ENOMEM; -ENOENT or -ENOTUNIQ if a name is of no slice, or of several. */
int overview_take(struct overview_looker *looker, struct overview *ret_overview,
		  struct fault *fault);
void overview_free(struct overview *overview); /* also of a zeroed one */

/* Fills in the slices' figures since an earlier overview: the GPU time that they used, and for how
 * long their launches were delayed. Pods' names that are in the earlier one alone are kept: the
 * kubelet removes a pod's logs before HAMi removes its containers' directories, and the names by
 * control groups are searched for every few seconds, and need a process. Slices that are not in the
 * earlier one stay as they are. */
void overview_compare(struct overview *overview, const struct overview *earlier);

/* The same slice in another overview, or the device of a slice by UUID. NULL: it is not there, or
 * slice is NULL. */
const struct overview_slice *overview_find(const struct overview *overview,
					   const struct slices_one *one);
const struct overview_device *overview_find_device(const struct overview_slice *slice,
						   const char *uuid);

/* Whether NVML's pid is that of the process, which lives: in our pid namespace, or in the host's.
 */
bool overview_is_process(const struct overview_process *process, unsigned pid);

/* Whether the process has mapped the slice's region, as every process of the slice has. A program
 * of the slice can write any pid into the region. No file of the process is asked: the file system
 * of one may never answer. */
bool overview_has_region(const struct overview_slice *slice, int pid);

/* Whether overview_compare with a later overview would show anything. */
bool overview_has_counts(const struct overview *overview);
/* Waits, reads the slices again for which overview_compare would show anything, and fills in their
 * figures. */
void overview_measure(struct overview *overview, uint64_t wait_ns);

/* The state's name, such as "running". Names are stable, for --json. */
const char *overview_state_name(enum overview_state state);

/* The parts of a GPU's time that slices are assured. Leftovers and unreadable slices do not count.
 */
struct overview_assured {
	unsigned count;    /* slices with an assured part */
	unsigned sum_pct;  /* above 100: if all want the GPU, each gets its part * 100 / sum_pct */
	unsigned most_pct; /* the largest part */
};

struct overview_assured overview_assured(const struct overview *overview, const char *uuid);

/* The bytes of a GPU that slices hold which have launched in the last 30 s. More than the GPU has
 * is possible with managed memory; work of several slices then moves memory. Saturates. */
uint64_t overview_held_bytes(const struct overview *overview, const char *uuid);
