/*
 * The region of a slice (include/vgpu_region.h has the layout): open it, be one of its processes,
 * and keep the ledger.
 *
 * What always holds, whenever the lock is free: for each device, own.device[d].used is the sum of
 * slots[s].used[d].total over the slots whose status is not 0, and of exiting_data and
 * exiting_other over the slots whose process has begun to exit; each slot's total is the sum of its
 * classes. A process writes to its own slot only, apart from two things: it clears a dead one's,
 * and where a charge for shared memory moves, it raises the data class of the slot that has it from
 * then on. All of it under the lock. Memory that is shared (own.shares) is in one slot's data
 * class, as long as any of those that share it lives. Whoever dies, at whatever instruction: its
 * slot's byte is unlocked by the kernel, a lock that it held is taken over by the next waiter, and
 * every total is then computed anew from the slots of the living, and of the dying, whose memory
 * the device does not have back yet.
 *
 * A file that is deleted, renamed, replaced, truncated or written over while it is used is lost for
 * good: nothing more is to be had of it, and what touches it without looking first may be killed.
 *
 * No function prints, and none holds the region's lock when it returns. All are thread-safe but for
 * open, close, claim and forget, which the caller serialises.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"
#include "lock.h"
#include "vgpu_region.h"

/* How a slice's devices are written into a new region. */
struct region_setup {
	unsigned device_count; /* at most VGPU_DEVICES_MAX */
	int priority;          /* 0 high, 1 low */
	bool has_group;        /* a new file is the owner's and the group's: mode 0660; else 0666 */
	unsigned group;
	struct {
		char uuid[VGPU_UUID_LEN];
		uint64_t memory_bytes;   /* 0: no limit */
		unsigned cores_pct;      /* 0: no limit */
		unsigned cores_most_pct; /* while no other slice wants it; 0: cores_pct */
		uint64_t burst_ns;       /* 0: as vgpu has it */
	} device[VGPU_DEVICES_MAX];
};

/* Which of struct vgpu_hami_usage's fields a charge goes to. */
enum region_class { REGION_CONTEXT, REGION_MODULE, REGION_DATA, REGION_OFFSET };
#define REGION_CLASSES 4

/* A process's hold on a region. Start with REGION_CLOSED. */
struct region {
	struct vgpu_region_file *file;
	const char *path; /* the caller's, who keeps it */
	int fd;           /* atomic: any thread opens it again when it is lost */
	int slot;      /* ours, or -1: an onlooker, who may read, reap and check but not charge */
	bool counts;   /* what is charged to our slot does; the slot is ours a while before that */
	bool writable; /* the mapping may be written */
	bool exiting;  /* region_begin_exit has emptied our slot; atomic */

	/* For region/ only. */
	uint32_t owner;       /* who we are to own.lock, 0: nobody yet */
	unsigned borrowed;    /* the slot that lends an onlooker its byte, while it has the lock */
	struct lock onlooker; /* between an onlooker's threads, for owner and borrowed */
	bool was_valid; /* everything held when the lock was taken: for an assertion; the lock's */
	uint64_t device, inode;           /* of fd, to know it again */
	uint64_t root_device, root_inode; /* of "/" when it was opened; 0: its path is relative */
	/* Refunds for which the lock was not to be had. Atomic: any thread adds, and the next that
	 * holds the lock takes them out; is_late says that there are some. */
	uint64_t late[VGPU_DEVICES_MAX][REGION_CLASSES];
	uint32_t is_late;
	int pid; /* the process that claimed the slot: a vfork child has our memory */
	/* What our slot's classes were when it was emptied, and became since: written under the
	 * lock. REGION_DATA is not used, as another process may change exiting_data. */
	uint64_t exiting_class[VGPU_DEVICES_MAX][REGION_CLASSES];
	/* The most that our slot's classes but `offset` held together since region_peak_begin:
	 * written under the lock. */
	uint64_t peak[VGPU_DEVICES_MAX];
	uint32_t made;          /* own.made when it was opened */
	int lost;               /* why it can be used no more, 0 while it can; atomic */
	uint64_t watch_next_ns; /* when to look at the file again; atomic */
	/* When we first saw the dead of pid namespaces that are not ours, and which claim it was;
	 * any thread writes. */
	struct region_death {
		uint32_t claim, seen_ms;
	} deaths[VGPU_SLOTS_MAX];
};

#define REGION_CLOSED                \
	{                            \
		.fd = -1, .slot = -1 \
	}

/*
 * Opens the region at path. With a setup, a missing or empty file becomes a region of that setup,
 * of mode 0666 (tenants run as several users), or 0660 with a group, whoever comes first, or -EBUSY
 * while what was there before is in use; a region that nobody living or dying holds takes the
 * setup's devices and limits, as a container does that starts again over its old file, and waits
 * for the dying for REGION_DYING_PATIENCE_NS at most; and in one that is held, the setup's devices
 * that it lacks are appended. Without one, nothing is created. A file that is something else is
 * left alone: -EINVAL, and the fault says what it is. Errors: -ENOENT, -EACCES, -EINVAL, -ENOSPC,
 * -EROFS … of open(2) and mmap(2), each with the path and the cure in the fault. ret_region is
 * untouched on failure. The path is looked at again while the region is open: it must stay where it
 * is, and is best absolute.
 */
int region_open(const char *path, const struct region_setup *setup, struct region *ret_region,
		struct fault *fault);

/* The same for onlookers, read-only where writing is not permitted. */
int region_view(const char *path, struct region *ret_region, struct fault *fault);

/* The same for whoever must leave everything as it is: read-only though writing were permitted, so
 * that nothing waits for it and nothing is repaired, and also with device and slot counts that are
 * out of bounds, for region_check to say so. */
int region_inspect(const char *path, struct region *ret_region, struct fault *fault);

/* Gives the slot back, with all that is charged to it, and unmaps. Also of a REGION_CLOSED. */
void region_close(struct region *region);

/*
 * The process begins to exit. Its slot is emptied as monitors see it: status, pid and bytes are 0.
 * What it holds of the devices counts as before until it is dead and the device has its memory
 * back, as for a killed process. Every function works as before meanwhile, for this and other
 * threads: charges, refunds and shares change what the exiting process holds. Does nothing without
 * a slot, in another process than the one that claimed it (a vfork child), or where the lock is not
 * free within REGION_EXIT_PATIENCE_NS: then the slot stays as that of a killed process. Safe in a
 * signal handler.
 */
void region_begin_exit(struct region *region);

/*
 * In a forked child: lets go of the parent's mapping and descriptor, touching nothing that is the
 * parent's. The region is REGION_CLOSED then. Until it does, or execs or exits, the parent's slot
 * seems to live even if the parent does not.
 */
void region_forget(struct region *region);

/* Tells the slice from others on this machine, by its region; not 0. */
static inline uint64_t region_key(const struct region *region)
{
	uint64_t key = (region->inode ^ region->device << 40 ^ (uint64_t)region->made << 32) *
		       0x9e3779b97f4a7c15u;

	return key ? key : 1;
}

/* Takes a slot for the calling process: -EUSERS when all VGPU_SLOTS_MAX are held by the living.
 * Look devices up after it: only a claim keeps others from resetting the region. */
int region_claim(struct region *region, struct fault *fault);

/* The device's index in the region, or -ENOENT, -ESTALE or -EUCLEAN. uuid may be shorter than
 * VGPU_UUID_LEN. */
int region_find_device(struct region *region, const char *uuid);

/* Whether the mapping may be touched, by a look at the file where one is due: for whoever reads
 * region->file, or calls region_own_usage, region_living or region_slot_dying, which do not look,
 * long after it was opened. */
bool region_is_there(struct region *region);

/* The same whenever the last look was, and whether it is still what was opened: for whoever waits
 * for a word of it that others write. 0, or the region is lost: -ESTALE or -EUCLEAN. */
int region_examine(struct region *region);

/*
 * Charges bytes of the device to our slot, if what the slice holds of it stays within limit_bytes
 * (0: no limit). Dead processes are reaped before it is refused. Returns 0, -EDQUOT, -ETIMEDOUT
 * when a living process would not let go of the lock within REGION_LOCK_PATIENCE_NS, -ESTALE or
 * -EUCLEAN for good when the file has been taken away (region_why_lost), -EBADF from an onlooker,
 * or -EINVAL for a device that the region has not.
 */
int region_charge(struct region *region, unsigned device, enum region_class class, uint64_t bytes,
		  uint64_t limit_bytes);

/* The same for as much as there is, from least_bytes to most_bytes. */
int region_charge_range(struct region *region, unsigned device, enum region_class class,
			uint64_t least_bytes, uint64_t most_bytes, uint64_t limit_bytes,
			uint64_t *ret_bytes);

/* Gives back what was charged to our slot; more than that leaves 0. Never fails: where the lock
 * cannot be had in time, the next change of our slot makes it first. */
void region_refund(struct region *region, unsigned device, enum region_class class, uint64_t bytes);

/* Whether refunds wait for the lock: our slot shows more than we hold then. */
static inline bool region_is_late(const struct region *region)
{
	return __atomic_load_n(&region->is_late, __ATOMIC_ACQUIRE); /* pairs with the ledger's
								       release of it */
}

/*
 * Memory that processes of the slice share, by CUDA IPC or exported handles: charged once, to the
 * slot of one of them. All but the last return -EBADF from an onlooker, who has no slot.
 */

/* Our slot holds `bytes` of the device, charged as data, that others can import under `key` (never
 * 0; a hash of what is handed out). 0; -ENOSPC when the table is full (then importers count it for
 * themselves: the safe side); -ETIMEDOUT; -EINVAL for no key, or a device that the region has not.
 * Exporting the same key again by the same slot is 0, and changes nothing. */
int region_share_export(struct region *region, unsigned device, uint64_t key, uint64_t bytes);

/* Our slot is about to give the memory up, for which bytes are charged by now. If another living
 * slot of the slice imports it, the charge moves there: our data class goes down by bytes, its data
 * class up, the device's total stays, no limit is asked; or if nobody does but our own slot, or
 * a descriptor, it stays for as long as that is so. Returns 1 then: the caller must not refund. 0:
 * nobody has it open; the caller refunds as usual. -ETIMEDOUT: unknown; the caller refunds. */
int region_share_withdraw(struct region *region, uint64_t key, uint64_t bytes);
#define REGION_SHARE_AS_EXPORTED UINT64_MAX /* as many as when it was exported */

/*
 * Memory that goes to others as a file descriptor, which keeps it on the device by itself. `key`
 * tells the memory from any other that was or will be, in this slice or another; 0: it has none
 * yet. `file` tells which inode its descriptors are of.
 */
struct region_descriptors {
	uint64_t key;
	uint32_t file; /* 1: of several */
};

/* One more descriptor of the memory, which is given a key if it has none: it keeps the memory, and
 * is known by region_descriptor_key, wherever it or a copy goes. 0; or a negative errno, and then
 * nobody can tell how long it is open. */
int region_descriptor_mark(int fd, struct region_descriptors *descriptors);

/* What `file` is for a descriptor; 0: not to be had. */
uint32_t region_descriptor_file(int fd);
bool region_is_descriptor_key(uint64_t key);

/* Whether a descriptor of the memory is left anywhere: 1, 0, or a negative errno for "not to be
 * learnt", which callers take for 1. Some 10 us. */
int region_descriptors_left(struct region *region, const struct region_descriptors *descriptors);

/* The same for several keys, of DMA-BUFs and of what nobody here has open: which of them have a
 * descriptor somewhere. 0; or a negative errno where that is not to be learnt, as -EAGAIN when the
 * last call is less than a second old: this is dear. */
int region_descriptors_listed(const uint64_t *keys, size_t count, bool *ret_found);

/* The key of the charge of our slice that the descriptor's memory has; 0: it has none. */
uint64_t region_descriptor_key(struct region *region, int fd);

/* region_share_export for such memory. When our slot withdraws it, or dies, or the last importer
 * closes it, and a descriptor may be left, the charge stays: in our slot's offset class, and when
 * that dies in another's. */
int region_share_export_descriptors(struct region *region, unsigned device,
				    const struct region_descriptors *descriptors, uint64_t bytes);

/* Gives back what only descriptors kept and our slot has charged, where none is left. Whether there
 * was any. */
bool region_share_look(struct region *region);

/* Our slot has opened what is exported under key. 1: somebody of the slice (another slot, or our
 * own) has it charged: ours is not charged; *ret_device, *ret_bytes say what. Counted: each import
 * has its end. 0: nobody of the slice exports it; nothing is recorded. -ENOSPC, -ETIMEDOUT: nothing
 * recorded, the caller charges for itself. */
int region_share_import(struct region *region, uint64_t key, unsigned *ret_device,
			uint64_t *ret_bytes);

/* One import is closed. If the charge had moved to our slot, and this was our last import of it, it
 * goes on to another importer, or is given back. Where the lock cannot be had in time, the import
 * stays for the rest of our slot's life, which counts too much rather than too little. */
void region_share_import_end(struct region *region, uint64_t key);

/* What NVML may count for our slot's process, or for another one, of memory that several processes
 * have open. NVML counts such memory once: for the process that made it, and after that process has
 * given it up, for one of the others. */
struct region_doubt {
	uint64_t lent_bytes; /* open here; the process that made it lives, has it charged, and has
				it in its figure until it gives the memory up */
	uint64_t elsewhere_bytes; /* open here, and charged to another slot or as kept; it may be
				     in our figure */
	uint64_t here_bytes;      /* charged to our slot; it may be in no figure or in another's */
};

/* Of the device's memory. No lock is taken. */
struct region_doubt region_share_doubt(struct region *region, unsigned device);

/* What the slice holds of the device, bytes: its own total, no lock taken. */
uint64_t region_used(struct region *region, unsigned device);
/* What to show of it: less what processes held that exited normally and are over, whose slots
 * nobody has cleared yet. Works on damaged regions too. */
uint64_t region_shown(struct region *region, unsigned device);
/* What it may hold, bytes, 0 for no limit: as written there, and as it was when the device was
 * added. No lock is taken. */
uint64_t region_limit(struct region *region, unsigned device, uint64_t *ret_first);
/* Writes it, if it is before still; whether it was. */
bool region_change_limit(struct region *region, unsigned device, uint64_t before, uint64_t now);
/* Writes how much credit its bucket holds (burst_ns), likewise. */
bool region_change_burst(struct region *region, unsigned device, uint64_t before_ns,
			 uint64_t now_ns);
/* Counts an allocation that was refused because the slice holds its limit of the device. */
void region_note_refusal(struct region *region, unsigned device);
/* A device's limits, 0 for none. */
struct region_limits {
	uint64_t memory_bytes;
	unsigned cores_pct, cores_most_pct; /* percent; the latter as in struct region_setup */
	uint64_t burst_ns;                  /* the credit that its bucket holds; 0: the default */
};

/* Writes them, each by one store. The region must be writable. */
void region_set_limits(struct region *region, unsigned device, const struct region_limits *limits);
/* What our slot holds of it. */
struct vgpu_hami_usage region_own_usage(const struct region *region, unsigned device);

/* Begins to note the most that our slot holds of the device in all classes but REGION_OFFSET: one
 * caller at a time. 0, or why the lock cannot be had; then nothing is noted. */
int region_peak_begin(struct region *region, unsigned device);
/* The most since then, by our own charges: what another process moves to our slot is not in it. */
uint64_t region_peak(const struct region *region, unsigned device);
void region_peak_end(struct region *region, unsigned device);

/* Whether the slot's process lives; "may live" counts as alive. */
bool region_slot_alive(struct region *region, unsigned slot);
/* Of a slot that is not free, and whose process is not alive: whether it is dying, that is, the
 * device may not have back what it held. */
bool region_slot_dying(struct region *region, unsigned slot);
/* Clears the slots of the dead whose memory the device has back. Returns how many, or a negative
 * errno. */
int region_reap(struct region *region);
/* How many slots have a living process, our own included. */
unsigned region_living(struct region *region);

/*
 * Pauses the slice, or resumes it. The pause is a state of the slice: it stays when the slice's
 * processes die or the region is reset, and each process that takes a slot starts suspended. The
 * slice's living processes are suspended from their next launch on, or resumed. Returns whether the
 * slice's state changed; *ret_processes is how many living processes were suspended or resumed. The
 * region must be writable.
 */
bool region_pause(struct region *region, bool paused, unsigned *ret_processes);

/* Whether the slice is paused. No lock is taken. */
bool region_is_paused(const struct region *region);

/*
 * Waits for the dying: processes that are dead, hold memory of the device, and are not through with
 * their ending, as after a kill -9; the device has their memory back when they are. Reaps them, and
 * waits for REGION_DYING_PATIENCE_NS at most; holds no lock. Whether there were any.
 */
bool region_wait_dying(struct region *region, unsigned device);

/* The charge of our slot for its contexts on the device is a guess, most likely too high: before it
 * is charged, and when the context is there. And it is none any more: after it was corrected. */
void region_guess_begin(struct region *region, unsigned device);
void region_guess_end(struct region *region, unsigned device);

/*
 * Waits while another living process has charged a guess for a context on the device: its process
 * corrects the guess when it first allocates there, which may make room. A guess is waited for
 * until it is REGION_GUESS_PATIENCE_NS old; no lock is held. Whether there was any.
 */
bool region_wait_guesses(struct region *region, unsigned device);

/* Once a call has returned -ESTALE or -EUCLEAN: says what happened to the file, and returns that.
 */
int region_why_lost(const struct region *region, struct fault *fault);

/* Who is in a slot, and what it holds of one device. */
struct region_process {
	int pid;        /* in its own pid namespace */
	int hostpid;    /* in the host's, 0 when not known */
	uint64_t bytes; /* its total */
};

/* Lists the living: how many there are. device may be negative: bytes are 0 then. Takes no lock;
 * who comes or goes meanwhile may be listed or not. */
unsigned region_processes(struct region *region, int device,
			  struct region_process ret_processes[VGPU_SLOTS_MAX]);

/*
 * Whether everything that always holds does hold. Calls say(arg, line) once for each thing that is
 * wrong, and returns how many there are. Takes the lock where the region is writable.
 */
unsigned region_check(struct region *region, void (*say)(void *arg, const char *line), void *arg);

/* How long to wait for a living lock holder (one that is stopped, say) before giving up. */
#define REGION_LOCK_PATIENCE_NS ((uint64_t)2000000000)

/* The same for an exit: a thread of the exiting process may have stopped while it held the lock, as
 * when it is interrupted by a signal whose handler exits. */
#define REGION_EXIT_PATIENCE_NS ((uint64_t)20000000)

/* How long to wait for the dying. On an H200, 60 to 140 ms go by between a kill and the memory. */
#define REGION_DYING_PATIENCE_NS ((uint64_t)1000000000)

/* How long a process may take from its first context to its first allocation before others that
 * find no room are refused, though its charge is most likely too high. */
#define REGION_GUESS_PATIENCE_NS ((uint64_t)2000000000)

/* How old a look at the file may be when the region is used. */
#define REGION_WATCH_NS ((uint64_t)20000000)
