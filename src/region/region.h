/*
 * The region of a slice (include/vgpu_region.h has the layout): opening it, taking a slot in it,
 * and keeping the ledger.
 *
 * What always holds, whenever the lock is free. For each device, own.device[d].used is the sum of
 * slots[s].used[d].total over the slots whose status is not 0. It includes exiting_data and
 * exiting_other of the slots whose process has begun to exit. Each slot's total is the sum of its
 * classes. The data class of exactly one slot has the charge for memory that processes share
 * (own.shares), as long as any of these processes lives.
 *
 * Who writes what, under the lock. A process writes to its own slot, with two exceptions. It clears
 * the slot of a dead process, and it raises the data class of the slot to which a charge moves.
 *
 * If a process dies at any instruction. The kernel unlocks the byte of its slot. The next process
 * that waits for a lock that the dead process held takes the lock over. Then every total is
 * computed again from the slots of living processes, and of dying processes, whose memory the
 * device does not have back yet.
 *
 * A file that is deleted, renamed, replaced, truncated or written over while it is in use is lost
 * for good. The functions fail, and a process that touches the mapping without a look at the file
 * may be killed (SIGBUS).
 *
 * No function prints, and no function holds the region's lock when it returns. All functions are
 * thread-safe except open, close, claim and forget, which the caller serialises. In this header,
 * "our slot" is the slot of the calling process.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"
#include "hash.h"
#include "lock.h"
#include "vgpu_region.h"

/* The devices and limits of a slice, as region_open writes them into a new region. */
struct region_setup {
	unsigned device_count; /* at most VGPU_DEVICES_MAX */
	int priority;          /* 0 high, 1 low */
	bool has_group;        /* a new file has the mode 0660 and this group; else the mode 0666 */
	unsigned group;
	struct {
		char uuid[VGPU_UUID_LEN];
		uint64_t memory_bytes;   /* 0: no limit */
		unsigned cores_pct;      /* percent of the time; 0: no limit */
		unsigned cores_most_pct; /* while no other slice wants the device; 0: cores_pct */
		uint64_t burst_ns;       /* the largest credit; 0: the default */
	} device[VGPU_DEVICES_MAX];
};

/* The class of a charge: the field of struct vgpu_hami_usage that has its bytes. */
enum region_class { REGION_CONTEXT, REGION_MODULE, REGION_DATA, REGION_OFFSET };
#define REGION_CLASSES 4

#define REGION_LATE_SHARES_MAX 64

enum region_late_state { REGION_LATE_FREE, REGION_LATE_TAKEN, REGION_LATE_FULL };

/* A region as one process has it open. Its first value is REGION_CLOSED. */
struct region {
	struct vgpu_region_file *file;
	const char *path; /* the caller keeps the string while the region is open */
	int fd;           /* atomic: any thread opens the file again if the descriptor is lost */
	int slot;         /* ours; -1: an onlooker, which may read, reap and check, not charge */
	bool counts;   /* charges to our slot are in the totals: true once the claim is complete */
	bool writable; /* the mapping may be written */
	bool exiting;  /* region_begin_exit has emptied our slot; atomic */

	/* The other members are for src/region/ only. */
	uint32_t owner;       /* our word in own.lock; 0: there is none yet */
	unsigned borrowed;    /* the slot whose byte an onlooker uses while it has the lock */
	struct lock onlooker; /* between threads of an onlooker; for `owner` and `borrowed` */
	bool was_valid; /* the region was valid when the lock was taken: for an assertion; under the
			   lock */
	uint64_t device, inode;           /* of fd: a descriptor is checked against them */
	uint64_t root_device, root_inode; /* of "/" at region_open; 0: the path is relative */
	/* Changes that could not get the lock in time, and that the next thread with the lock
	 * makes: bytes of refunds, and of charges that must not fail. Atomic: any thread adds to
	 * them. is_late: there are some, or in late_shares. */
	uint64_t late[VGPU_DEVICES_MAX][REGION_CLASSES];
	uint64_t late_charges[VGPU_DEVICES_MAX][REGION_CLASSES];
	uint32_t is_late;
	/* The same for the ends of exports and imports (share.c). A thread that fills an entry in,
	 * or takes it out, has it meanwhile. */
	struct region_late_share {
		uint64_t key, bytes;
		bool is_import;
		uint32_t state; /* of enum region_late_state; atomic */
	} late_shares[REGION_LATE_SHARES_MAX];
	int pid; /* the process that claimed the slot; a vfork child shares this memory */
	/* Bytes in the classes of our slot since region_begin_exit emptied the slot. Written under
	 * the lock. REGION_DATA is not used, as another process may change exiting_data. */
	uint64_t exiting_class[VGPU_DEVICES_MAX][REGION_CLASSES];
	/* The largest sum of bytes in the classes of our slot without `offset` since
	 * region_peak_begin. Written under the lock. */
	uint64_t peak[VGPU_DEVICES_MAX];
	uint32_t made;          /* own.made at region_open */
	int lost;               /* the error for which the region is lost; 0: it is not; atomic */
	uint64_t watch_next_ns; /* when the next look at the file is due; atomic */
	/* For each slot, the claim of a dead process in another pid namespace, and when this
	 * process first saw the process dead. Any thread writes. */
	struct region_death {
		uint32_t claim, seen_ms;
	} deaths[VGPU_SLOTS_MAX];
};

#define REGION_CLOSED                \
	{                            \
		.fd = -1, .slot = -1 \
	}

/*
 * Opens the region at path. ret_region is untouched on failure.
 *
 * With a setup:
 *     no file, or an empty one    The file becomes a region of the setup.
 *     no living process has it    The region takes the setup's devices and limits, as when a
 *                                 container starts again over its old file. The call waits for
 *                                 dying processes, for REGION_DYING_PATIENCE_NS at most.
 *     a living process has it     Devices of the setup that the region lacks are appended.
 *
 * Without a setup, nothing is created.
 *
 * For each error, the fault has the path and the cure. -EINVAL: the file is something else, and is
 * left alone. -EBUSY: the region that was there before is in use. -ENOENT, -EACCES, -ENOSPC, -EROFS
 * and others are those of open(2) and mmap(2). Later calls look at the path again, so the path
 * should be absolute, and the file must stay there.
 */
int region_open(const char *path, const struct region_setup *setup, struct region *ret_region,
		struct fault *fault);

/* Opens the region at path for an onlooker, read-only where writing is not permitted. Otherwise as
 * region_open without a setup. */
int region_view(const char *path, struct region *ret_region, struct fault *fault);

/* Opens the region at path read-only, also where writing is permitted: so no process waits for the
 * caller, and nothing is repaired. Counts of devices and slots that are out of bounds are accepted,
 * for region_check to report. Otherwise as region_view. */
int region_inspect(const char *path, struct region *ret_region, struct fault *fault);

/* Gives our slot back with all its charges, and unmaps the file. Accepts REGION_CLOSED. */
void region_close(struct region *region);

/*
 * The process begins to exit. Its slot becomes empty for monitors: status, pid and bytes are 0. The
 * bytes count in the totals as before, until the process is dead and the device has its memory
 * back, as for a killed process. All functions keep working for this thread and others: charges,
 * refunds and shares change what the exiting process holds.
 *
 * Does nothing without a slot; in another process than the one that claimed the slot (a vfork
 * child); or if the lock is not free within REGION_EXIT_PATIENCE_NS. In the last case the slot
 * stays as that of a killed process. Safe in a signal handler.
 */
void region_begin_exit(struct region *region);

/*
 * For a forked child: drops the parent's mapping and descriptor, and touches nothing else of the
 * parent's. The region is REGION_CLOSED then. Until the child calls it, execs or exits, the
 * parent's slot seems to live, also if the parent is dead.
 */
void region_forget(struct region *region);

/* A number that tells the slice from other slices of this machine. Not 0. */
static inline uint64_t region_key(const struct region *region)
{
	uint64_t key =
		hash_word(region->inode ^ region->device << 40 ^ (uint64_t)region->made << 32);

	return key ? key : 1;
}

/* Whether a region whose file has that inode can have the key. The low 32 bits of a product depend
 * on the low 32 bits of the factors only, and the device and the time are above them. */
static inline bool region_key_fits(uint64_t key, uint64_t inode)
{
	return (uint32_t)key == (uint32_t)hash_word(inode);
}

/* Takes a slot for the calling process. Look devices up after the call: only a claim keeps other
 * processes from a reset of the region. Returns 0, or an error with a fault. -EUSERS: living
 * processes have all VGPU_SLOTS_MAX slots. -EROFS: the region is read-only. -EALREADY: the process
 * has a slot. -ETIMEDOUT, -ESTALE and -EUCLEAN are as in region_charge. */
int region_claim(struct region *region, struct fault *fault);

/* The index of the device in the region; -ENOENT if the region lacks the device; -ESTALE or
 * -EUCLEAN if the region is lost. uuid may be shorter than VGPU_UUID_LEN. */
int region_find_device(struct region *region, const char *uuid);

/* Whether the mapping may be touched. Looks at the file if the last look is older than
 * REGION_WATCH_NS. Callers need it before they read region->file, or call region_own_usage,
 * region_living or region_slot_dying, some time after region_open. */
bool region_is_there(struct region *region);

/* Looks at the file at once. 0, if the file is still the one that was opened; -ESTALE or -EUCLEAN
 * if the region is lost. For a thread that waits until another process writes a word of the region.
 */
int region_examine(struct region *region);

/*
 * Charges bytes of the device to our slot, if the slice then holds at most limit_bytes of the
 * device (0: no limit). Clears the slots of the dead before it refuses. Returns 0, or:
 *
 *     -EDQUOT              the limit would be exceeded
 *     -ETIMEDOUT           a living process kept the lock for REGION_LOCK_PATIENCE_NS
 *     -ESTALE, -EUCLEAN    the region is lost for good (region_why_lost)
 *     -EBADF               the caller is an onlooker
 *     -EINVAL              the region has no such device
 */
int region_charge(struct region *region, unsigned device, enum region_class class, uint64_t bytes,
		  uint64_t limit_bytes);

/* Charges as many bytes as the limit leaves, from least_bytes to most_bytes; *ret_bytes says how
 * many. Otherwise as region_charge. */
int region_charge_range(struct region *region, unsigned device, enum region_class class,
			uint64_t least_bytes, uint64_t most_bytes, uint64_t limit_bytes,
			uint64_t *ret_bytes);

/* Charges bytes that the device holds already, whatever the limit. Never fails, unless the region
 * is lost: if the lock cannot be had in time, the next change of our slot makes the charge first.
 */
void region_charge_held(struct region *region, unsigned device, enum region_class class,
			uint64_t bytes);

/* Subtracts bytes from our slot; a refund of more than the class has leaves 0. Never fails: if the
 * lock cannot be had in time, the next change of our slot makes the refund first. */
void region_refund(struct region *region, unsigned device, enum region_class class, uint64_t bytes);

/* Whether refunds or charges wait for the lock: then our slot shows other bytes than the process
 * holds. */
static inline bool region_is_late(const struct region *region)
{
	/* Pairs with the release in ledger.c. */
	return __atomic_load_n(&region->is_late, __ATOMIC_ACQUIRE);
}

/*
 * Memory that processes of the slice share, by CUDA IPC or exported handles. It is charged once, to
 * the slot of one of them. The functions with an error as their result return -EBADF to an
 * onlooker, which has no slot.
 */

/* Records that other processes can import `bytes` of our slot's data class under `key`: a hash of
 * the exported handle, not 0. An export of a key that our slot exports already changes nothing.
 * Returns 0; -ETIMEDOUT; -EINVAL for the key 0 or an unknown device; or -ENOSPC if the table is
 * full. Then each importer is charged as well, which is the safe side. */
int region_share_export(struct region *region, unsigned device, uint64_t key, uint64_t bytes);

/*
 * Our slot is about to give up exported memory, for which `bytes` are charged by this time. 1: the
 * charge remains, and the caller must not refund it. If another living slot imports the memory, the
 * charge has moved there, from our data class to the other's. The device's total does not change,
 * and the limit is not checked. If only our slot imports the memory, or a descriptor keeps it, the
 * charge stays with our slot as long as that is so. 0: no process has the memory open, and the
 * caller refunds.
 *
 * If the lock cannot be had in time, the answer is 1, too. The next change of our slot withdraws
 * the memory first, and refunds `bytes` if no process has the memory open. If too many withdrawals
 * wait already, the answer is -ETIMEDOUT, and the export stays until our slot is cleared. Then the
 * caller must not refund either.
 */
int region_share_withdraw(struct region *region, uint64_t key, uint64_t bytes);
#define REGION_SHARE_AS_EXPORTED UINT64_MAX /* for `bytes`: as many as at the export */

/*
 * Memory that is exported as file descriptors, each of which keeps the memory on the device. `key`
 * tells the memory from all other memory, of any slice, at any time; 0: it has no key yet. `file`
 * tells the inode of the descriptors.
 */
struct region_descriptors {
	uint64_t key;
	uint32_t file; /* 1: descriptors of several inodes; 0: no descriptors */
};

/* Marks a descriptor of the memory with its key, and makes a key if there is none. A marked
 * descriptor and its copies are recognised by region_descriptor_key in every process. 0, or a
 * negative errno: then nothing can tell how long the descriptor is open. */
int region_descriptor_mark(int fd, struct region_descriptors *descriptors);

/* The value of `file` for a descriptor; 0: it cannot be learnt. */
uint32_t region_descriptor_file(int fd);
/* Whether the key is one of descriptors, and not a hash of a handle. */
bool region_is_descriptor_key(uint64_t key);

/* Whether any process has a descriptor of the memory: 1, 0, or a negative errno if that cannot be
 * learnt, which callers take for 1. About 10 us. */
int region_descriptors_left(struct region *region, const struct region_descriptors *descriptors);

/* Which of the keys have a descriptor in some process: of DMA-BUFs, and of memory that no process
 * here has open. 0, or a negative errno if that cannot be learnt. -EAGAIN: the last call is less
 * than a second old. A call takes long. */
int region_descriptors_listed(const uint64_t *keys, size_t count, bool *ret_found);

/* The key of the slice's charge for the memory of the descriptor; 0: there is no such charge. */
uint64_t region_descriptor_key(struct region *region, int fd);

/* As region_share_export, for memory that is exported as descriptors. The charge stays while a
 * descriptor may be left, also after our slot has withdrawn the memory or died, or the last
 * importer has closed it. It is then in the offset class of our slot, and after our death in that
 * of another slot. */
int region_share_export_descriptors(struct region *region, unsigned device,
				    const struct region_descriptors *descriptors, uint64_t bytes);

/* Refunds what our slot is charged for memory that only descriptors kept, where no descriptor is
 * left. Returns whether there was any. */
bool region_share_look(struct region *region);

/* Records that our slot has opened the memory that is exported under key.
 *
 * 1: a slot of the slice, which may be ours, is charged for the memory, so our slot is not.
 * *ret_device and *ret_bytes say what is charged. Imports are counted: each needs its own
 * region_share_import_end. 0: no slot of the slice exports the key. -ENOSPC, -ETIMEDOUT: nothing is
 * recorded. In these cases the caller charges the memory to our slot. */
int region_share_import(struct region *region, uint64_t key, unsigned *ret_device,
			uint64_t *ret_bytes);

/* Ends one import. If the charge had moved to our slot, and this was our last import of the memory,
 * the charge moves to another importer, or is refunded. If the lock cannot be had in time, the next
 * change of our slot ends the import first. If too many ends wait already, the import stays until
 * our slot is cleared: too much is charged rather than too little. */
void region_share_import_end(struct region *region, uint64_t key);

/* The uncertainty in NVML's figure for our process, and for others, from memory that several
 * processes have open. NVML counts such memory once: for the process that made it, and after that
 * process has given it up, for one of the others. Bytes. */
struct region_doubt {
	/* Open here. The process that made it lives, is charged, and has it in its figure. */
	uint64_t lent_bytes;
	/* Open here, and charged to another slot, or kept by descriptors. It may be in our figure.
	 */
	uint64_t elsewhere_bytes;
	/* Charged to our slot. It may be in no figure, or in another process's. */
	uint64_t here_bytes;
};

/* The uncertainty for one device. Takes no lock. */
struct region_doubt region_share_doubt(struct region *region, unsigned device);

/* Whether the charge of that key has moved to our slot. Takes no lock. */
bool region_share_has_moved_here(struct region *region, uint64_t key);

/* The total that the slice is charged for the device, bytes. Takes no lock. */
uint64_t region_used(struct region *region, unsigned device);
/* The total to show to users, bytes: without the charges of processes that exited normally and are
 * over, whose slots are not cleared yet. Works on damaged regions, too. */
uint64_t region_shown(struct region *region, unsigned device);
/* The slice's memory limit on the device, bytes; 0: none. *ret_first is the limit with which the
 * device was added. Takes no lock. */
uint64_t region_limit(struct region *region, unsigned device, uint64_t *ret_first);
/* Sets the memory limit to `now`, if it is `before`. Returns whether it was. Bytes. */
bool region_change_limit(struct region *region, unsigned device, uint64_t before, uint64_t now);
/* Sets the largest credit of the device's token bucket to now_ns, if it is before_ns. Returns
 * whether it was. */
bool region_change_burst(struct region *region, unsigned device, uint64_t before_ns,
			 uint64_t now_ns);
/* Counts an allocation that was refused because of the slice's memory limit on the device. */
void region_note_refusal(struct region *region, unsigned device);
/* The limits of a device; 0: none. */
struct region_limits {
	uint64_t memory_bytes;
	unsigned cores_pct, cores_most_pct; /* percent; as in struct region_setup */
	uint64_t burst_ns;                  /* the largest credit; 0: the default */
};

/* Sets the limits of a device, each by one store. The region must be writable. */
void region_set_limits(struct region *region, unsigned device, const struct region_limits *limits);
/* The charges of our slot for the device, by class. Does not look at the file. */
struct vgpu_hami_usage region_own_usage(const struct region *region, unsigned device);

/* Begins to record the largest sum of bytes that our slot is charged for the device in all classes
 * except REGION_OFFSET. One caller at a time. 0, or the error of the lock: then nothing is
 * recorded.
 */
int region_peak_begin(struct region *region, unsigned device);
/* The largest sum since region_peak_begin, by charges of our process. A charge that another process
 * moves to our slot is not in it. */
uint64_t region_peak(const struct region *region, unsigned device);
/* Ends the recording. */
void region_peak_end(struct region *region, unsigned device);

/* Whether the process of the slot lives. True if that is not known. */
bool region_slot_alive(struct region *region, unsigned slot);
/* Whether the process of the slot is dying: the driver may not have freed its memory yet. The
 * caller knows that the slot is not free and that the process is not alive. */
bool region_slot_dying(struct region *region, unsigned slot);
/* Clears the slots of dead processes whose memory the device has back. Returns how many, or a
 * negative errno. */
int region_reap(struct region *region);
/* How many slots have a living process, our own slot included. Does not look at the file. */
unsigned region_living(struct region *region);

/*
 * Pauses or resumes the slice. The slice stays paused when its processes die or the region is
 * reset, and each process that takes a slot starts suspended. Living processes are suspended from
 * their next launch on, or resumed; *ret_processes says how many. Returns whether the state
 * changed. The region must be writable.
 */
bool region_pause(struct region *region, bool paused, unsigned *ret_processes);

/* Whether the slice is paused. Takes no lock. */
bool region_is_paused(const struct region *region);

/*
 * Waits until no dying process holds memory of the device, for REGION_DYING_PATIENCE_NS at most,
 * and clears the slots of those that are over. Holds no lock while it waits. Returns whether there
 * were dying processes.
 */
bool region_wait_dying(struct region *region, unsigned device);

/* Marks the charge of our slot for its contexts on the device as a guess, which is most likely too
 * high. The caller marks it before it charges the guess, and again when the context exists. */
void region_guess_begin(struct region *region, unsigned device);
/* Ends the mark: the charge has been corrected. */
void region_guess_end(struct region *region, unsigned device);

/*
 * Waits while another living process is charged a guess for a context on the device. That process
 * corrects the guess at its first allocation there, which may make room. A guess older than
 * REGION_GUESS_PATIENCE_NS is not waited for. Holds no lock. Returns whether there was a guess.
 */
bool region_wait_guesses(struct region *region, unsigned device);

/* After a call returned -ESTALE or -EUCLEAN: writes the cause to the fault, and returns that error.
 */
int region_why_lost(const struct region *region, struct fault *fault);

/* The process of a slot, and what the slot is charged for one device. */
struct region_process {
	int pid;        /* in the process's own pid namespace */
	int hostpid;    /* in the host's pid namespace; 0: not known */
	uint64_t bytes; /* of all classes */
};

/* Lists the living processes, and returns how many there are. A negative device: bytes are 0. Takes
 * no lock, so the list may have or lack a process that comes or goes during the call. */
unsigned region_processes(struct region *region, int device,
			  struct region_process ret_processes[VGPU_SLOTS_MAX]);

/*
 * Checks all that the head of this file says always holds. Calls say(arg, line) once for each thing
 * that is wrong, and returns how many there are. Takes the lock if the region is writable.
 */
unsigned region_check(struct region *region, void (*say)(void *arg, const char *line), void *arg);

/* How long a call waits for the lock while a living process, which may be stopped, has it. */
#define REGION_LOCK_PATIENCE_NS ((uint64_t)2000000000)

/* How long region_begin_exit waits for the lock. A thread of the exiting process may have stopped
 * while it had the lock, as when a signal interrupts the thread and the handler exits. */
#define REGION_EXIT_PATIENCE_NS ((uint64_t)20000000)

/* How long a call waits for dying processes. On an H200, 60 to 140 ms go by between a kill and the
 * return of the memory. */
#define REGION_DYING_PATIENCE_NS ((uint64_t)1000000000)

/* How old a guess may be that others wait for. It is the time that a process may take from its
 * first context to its first allocation before others are refused for its charge. */
#define REGION_GUESS_PATIENCE_NS ((uint64_t)2000000000)

/* How old the last look at the file may be when the region is used. */
#define REGION_WATCH_NS ((uint64_t)20000000)
