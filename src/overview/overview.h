/*
 * The machine at one look: its slices, what they may have and hold, their processes, its GPUs, and
 * who is on them without a slice. For those who print it: vgpu ps, vgpu top.
 *
 * A region that cannot be read hides nothing but itself. Figures of a region are what its tenant's
 * processes say there; none is used for anything but to be shown.
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
	OVERVIEW_RUNNING,    /* a process of it lives */
	OVERVIEW_IDLE,       /* none, but a `vgpu run` has it */
	OVERVIEW_EMPTY,      /* no process lives of a slice that is not vgpu run's */
	OVERVIEW_LEFTOVER,   /* nothing of vgpu run's lives: the next one removes it */
	OVERVIEW_UNREADABLE, /* nothing is known: `why` says why */
};

/* Who has counted the GPU time that a slice takes. */
enum overview_counter { OVERVIEW_NOBODY, OVERVIEW_REGION, OVERVIEW_NVML };

struct overview_device {
	struct sight_device seen;
	struct sight_held held; /* the sums over its processes; the total is seen.used_bytes too */
	int gpu;                /* its place in usage.gpu, or -1 */
	int cores_used_pct;     /* of the GPU's time, since the look before; -1: not known */
	enum overview_counter counter;
	int throttled_pct;   /* of the time since the look before: for how long launches were held
			      * back by the compute limit; -1: not known, or there is no limit */
	int turn_waited_pct; /* likewise: for how long a process waited for turns of the slice, in
			      * the mean of its processes */
};

struct overview_process {
	struct sight_process seen; /* its state is corrected by what /proc shows */
	int here;                  /* its pid in our pid namespace, 0: not known */
	bool may_be_held; /* dead, and it cannot be told whether the GPU has its memory back */
	char command[OVERVIEW_COMMAND_LEN]; /* escaped, "" if not known */
};

struct overview_slice {
	const struct slices_one *one;
	enum overview_state state;
	char *why;    /* NULL but for OVERVIEW_UNREADABLE */
	uint64_t key; /* tells it from other slices in a file of turns (region_key); 0: not known */
	uint64_t file_device, file_inode; /* of the region's file; 0: there was none to look at */
	bool paused;                      /* vgpu pause has paused it */
	bool blocked;                     /* a monitor lets nothing be launched */
	bool lifted;                      /* a monitor has lifted the compute limit */
	struct sight_gang gang;
	int64_t launched_s;                          /* the last launch, unix seconds; 0: never */
	uint64_t looked_ns;                          /* when, CLOCK_MONOTONIC */
	unsigned running, paused_count, dying, dead; /* processes in these states */
	unsigned device_count;
	struct overview_device *device;
	unsigned process_count;
	struct overview_process *process;
	unsigned exiting_count;
	int *exiting; /* processes that have begun to exit: their pids in our pid namespace, or 0 */
};

/* A process on a GPU that is in none of the machine's slices. */
struct overview_stranger {
	unsigned gpu; /* its place in usage.gpu */
	struct usage_process seen;
	char command[OVERVIEW_COMMAND_LEN];
};

struct overview {
	struct slices slices;
	unsigned count; /* slices that are shown */
	struct overview_slice *slice;
	unsigned left_out;       /* slices that are too many of a tenant's */
	bool many_users;         /* they are not all one user's */
	struct usage usage;      /* empty without NVML */
	unsigned stranger_count; /* 0 where only some slices are shown */
	struct overview_stranger *stranger;
};

struct procs;
struct usage_source;

/* What to look at, and with what. Zeroed, and then overview_open'ed. */
struct overview_looker {
	char **name;             /* which slices, ends with NULL; none: all of them */
	unsigned most_of_tenant; /* slices that are looked at of one (tenants.h); 0: all */
	bool only_reads;         /* no lock is taken, not even to see whether it is held (held.h) */
	struct usage_source *usage; /* NULL without NVML */
	struct fault no_usage;      /* why */
	struct procs *procs;
};

int overview_open(struct overview_looker *looker, char **name, struct fault *fault);
void overview_close(struct overview_looker *looker);

/* Looks once. -ENOMEM; -ENOENT or -ENOTUNIQ where a name is of no slice, or of several. */
int overview_take(struct overview_looker *looker, struct overview *ret_overview,
		  struct fault *fault);
void overview_free(struct overview *overview); /* also of a zeroed one */

/* Fills in what slices did since the earlier look, of those that were there then: the GPU time that
 * they took, and for how long their launches were held back. */
void overview_compare(struct overview *overview, const struct overview *earlier);

/* The same slice in another look, and the same GPU of a slice; NULL: it is not there, or slice is
 * NULL. */
const struct overview_slice *overview_find(const struct overview *overview,
					   const struct slices_one *one);
const struct overview_device *overview_find_device(const struct overview_slice *slice,
						   const char *uuid);

/* Whether NVML means the process, which lives, by that pid: of our pid namespace, or of the host's.
 */
bool overview_is_process(const struct overview_process *process, unsigned pid);

/* Whether overview_compare would tell something of a later look. */
bool overview_has_counts(const struct overview *overview);
/* Waits, looks once more at the slices of which overview_compare would tell something, and fills
 * that in. */
void overview_measure(struct overview *overview, uint64_t wait_ns);

/* "running" and so on: stable, for --json. */
const char *overview_state_name(enum overview_state state);

/* What a GPU's slices are assured of its time: without leftovers, and slices that cannot be read.
 */
struct overview_assured {
	unsigned count;    /* slices that are assured a part */
	unsigned sum_pct;  /* above 100: where all want the GPU, each gets its part of that */
	unsigned most_pct; /* the largest part */
};

struct overview_assured overview_assured(const struct overview *overview, const char *uuid);

/* What slices hold of a GPU that have launched something in the last 30 s. Above what the GPU has,
 * as managed memory allows, work of several slices moves memory. Saturates. */
uint64_t overview_held_bytes(const struct overview *overview, const char *uuid);
