/*
 * The region: one file a slice, mapped by every process of the tenant and by monitors. It has the
 * slice's limits, its processes, and the memory that each of them holds on each GPU. This header is
 * the layout and nothing else; it is the only one that programs outside vgpu may include.
 * vgpu-region(5) explains it in prose, src/region/ works on it.
 *
 *        offset      bytes
 *             0  2,008,952   struct vgpu_hami_region: HAMi-core's layout 1.2, x86-64 and aarch64
 *                            alike, so that monitors that know it keep working
 *     2,008,952        136   nothing
 *     2,009,088      1,024   on each device, the group of the slice's processes that use it
 *     2,010,112      1,024   what the slice paid for its turns on each device
 *     2,011,136     86,016   struct vgpu_region_own: ours, with a magic, a version and a size
 *     2,097,152              the end: 2 MiB, whole pages
 *
 * A file is a region if and only if it has its full size and both magics; they are stored last. Any
 * process may read at any time, without a lock. Every field is written in one aligned store, so
 * each is some true value. A set of fields is consistent to within one change in progress. The
 * following may write. The owner of a slot writes it, and so does the holder of the lock where a
 * charge moves to another slot. The holder of the lock writes totals and shares. A program that
 * controls the slice writes limits, each by one store. HAMi's monitor writes utilization_switch,
 * monitor_used and a status between 1 and 2. The monitor and launching processes write
 * recent_kernel, and launching processes last_kernel_time. A slot counts if its status is not 0
 * *and* its process lives. A process lives while some open file holds the open-file-description
 * lock (fcntl(2)) on byte VGPU_SLOT_LOCK_OFFSET + slot. Pids prove nothing here: they repeat, and
 * mean different processes in different pid namespaces. The memory of a dead process counts until
 * the kernel has ended the process, because until then the device may not have it back. A process
 * that begins a normal exit empties its slot: status, pid and bytes become 0, and monitors do not
 * show it. Its charge moves to exiting_data and exiting_other. The charge counts there until the
 * process is dead and the device has its memory back. Such a slot has an exiting_pid.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define VGPU_DEVICES_MAX 16
#define VGPU_SLOTS_MAX   1024
#define VGPU_UUID_LEN    96 /* "GPU-…" or "MIG-…", NUL-padded: monitors use all 96 bytes as a key */

/* -- HAMi's part ------------------------------------------------------------------------------ */

#define VGPU_HAMI_MAGIC         19920718
#define VGPU_HAMI_VERSION_MAJOR 1
#define VGPU_HAMI_VERSION_MINOR 2

enum vgpu_slot_status {
	VGPU_SLOT_FREE = 0,
	VGPU_SLOT_RUNNING = 1,
	VGPU_SLOT_SUSPENDED = 2, /* set by a monitor: its launches wait until it is 1 again */
};

/* The memory that one process holds on one device, in bytes. */
struct vgpu_hami_usage {
	uint64_t context; /* as NVML counts it for the process */
	uint64_t module;  /* memory that the driver took on its own account since */
	uint64_t data;    /* memory that the application allocated */
	uint64_t offset;  /* taken from the device for it, but in no process's NVML figure */
	uint64_t total;   /* the sum of the four, which counts against the limit */
	/* Ours, in words that HAMi-core does not use. They have a meaning while the slot has an
	 * exiting_pid, and count against the limit in the place of `total`. */
	uint64_t exiting_data;  /* what was in `data` */
	uint64_t exiting_other; /* what was in the other three */
	uint64_t spare;
};

struct vgpu_hami_util {
	uint64_t decoder, encoder, sm; /* percent */
	uint64_t spare[3];
};

struct vgpu_hami_slot {
	int32_t pid;     /* in the process's own pid namespace */
	int32_t hostpid; /* in the host's, 0 when not known */
	struct vgpu_hami_usage used[VGPU_DEVICES_MAX];
	uint64_t monitor_used[VGPU_DEVICES_MAX];
	struct vgpu_hami_util device_util[VGPU_DEVICES_MAX];
	int32_t status; /* enum vgpu_slot_status */
	int32_t pad;
	uint64_t seqlock; /* always 0, which is "not being written": see "who may read" above */
	uint8_t spare[16];
};

struct vgpu_hami_region {
	int32_t magic; /* VGPU_HAMI_MAGIC */
	uint32_t version_major, version_minor;
	int32_t sm_init;
	uint64_t owner_pid;
	uint8_t sem[32];       /* HAMi-core's own lock: not used by us, nor by monitors */
	uint64_t device_count; /* device i is the same in uuids, limit, sm_limit and used */
	char uuids[VGPU_DEVICES_MAX][VGPU_UUID_LEN];
	uint64_t limit[VGPU_DEVICES_MAX];    /* bytes, 0 for none */
	uint64_t sm_limit[VGPU_DEVICES_MAX]; /* percent, 0 or at least 100 for none */
	struct vgpu_hami_slot slots[VGPU_SLOTS_MAX];
	int32_t slot_count; /* slots below it have been used: a high-water mark, nothing more */
	int32_t utilization_switch; /* 1, or the monitor's 0: the compute limit is lifted */
	int32_t recent_kernel; /* 2 after a launch; a monitor counts down, negative blocks them */
	int32_t priority;      /* 0 high, 1 low */
	int64_t last_kernel_time; /* of a launch, unix seconds, true to about one; 0: never */
	uint8_t sem_postinit[32];
};

/* -- our part --------------------------------------------------------------------------------- */

#define VGPU_REGION_OFFSET  2011136
#define VGPU_REGION_MAGIC   0x31304e4f49474552ull /* "REGION01" in the file's first eight bytes */
#define VGPU_REGION_VERSION 1

/*
 * The GPU time that the slice may take of a device, in nanoseconds. The slice has credit less
 * charged less corrected; below zero is debt. Each word is changed by itself, without the lock. A
 * process that is killed between two of them costs the slice some milliseconds. Times are of
 * CLOCK_MONOTONIC_RAW, as the first time namespace has it (before Linux 5.3, of CLOCK_MONOTONIC).
 * Where they start again with the next boot, the slice loses or gains no more than the contents of
 * the bucket.
 */
struct vgpu_region_bucket {
	uint64_t refilled;      /* when credit was last added to, 0: never */
	int64_t credit;         /* the time added at the rate of the quota, in all */
	int64_t charged;        /* the learned costs of submitted work, in all */
	int64_t corrected;      /* the corrections of that by measurements, in all */
	uint64_t busy_until;    /* when all that was submitted should be done, for monitors */
	uint32_t shut;          /* 1: launches wait for the bucket to recover */
	uint32_t refused;       /* allocations refused because the slice was full, modulo 2^32 */
	uint64_t shut_at;       /* when `shut` became 1; 0: its time is in throttled_ns */
	uint64_t joint_charged; /* ns: the part of `charged` that is for work in a gang of several
				 * slices */
};

#define VGPU_BURST_MAX_NS ((uint64_t)1000000000) /* of burst_ns; more means as much */

/*
 * The slice's account of its turns on a device (src/turn/turn.h): its payments, and its quota while
 * it takes turns with other slices. Times are as in a bucket.
 */
struct vgpu_region_turn {
	uint64_t held_from;  /* the slice has the turn, and has paid for it until then; 0: it has
			      * not */
	uint64_t ready_at;   /* when the slice has neither credit nor debt */
	uint64_t busy_until; /* when all that it has submitted should be over */
	uint64_t paid_until; /* no time before that is paid for again */
	uint64_t paid_ns;    /* what it paid, in all */
	uint64_t charged_ns; /* the part of paid_ns that the bucket has been charged */
	uint32_t shared; /* 1: the quota is kept by ready_at, as other slices use the device; 0: by
			  * the bucket */
	uint32_t cores_most;  /* percent, more than hami.sm_limit: the most that the slice may take
				 while no other wants the device; 0: sm_limit */
	uint64_t joint_until; /* until when the device's bucket has paid for work in a gang of
			       * several slices; 0: never. No part of the account */
};

/*
 * How often the slice had a turn on a device, and for how long it waited for them. A wait is
 * counted in the first place whose bound it does not exceed, and in the last place if it exceeds
 * all. A wait that was given up counts, too.
 */
#define VGPU_WAITS 12
#define VGPU_WAITS_BOUNDS_US \
	100, 300, 1000, 3000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000

struct vgpu_region_waits {
	uint64_t turns;             /* how many it had */
	uint64_t waited_ns;         /* the sum of its waits */
	uint32_t count[VGPU_WAITS]; /* of waits, modulo 2^32 */
};

struct vgpu_region_device {
	uint64_t used;         /* bytes: the sum of `total` over the slots that count */
	uint64_t context_cost; /* bytes that a context was last seen to take, 0 while unknown */
	uint64_t first_limit;  /* bytes: hami.limit as the device was added, 0 for none */
	uint64_t gang_until;   /* until when the bucket has paid for work in the slice's gang; 0:
				  never */
	uint64_t throttled_ns; /* for how long the bucket was shut, in all; without the present time
				*/
	uint64_t throttled;    /* how often the bucket was shut */
	uint64_t held;         /* launches that waited for the bucket */
	uint64_t burst_ns;     /* ns: the most credit that the bucket holds; 0: as vgpu has it */
	struct vgpu_region_bucket bucket;
};

/*
 * Groups of members that are throttled as one (docs/design/gangs.md). A member is one process's
 * work on one device. The gang has the members whose kernels may wait for each other, as those of a
 * job on several GPUs do. Where several processes of the slice use one device, they are the
 * device's group. Changed without the lock, by atomic stores of single words; times are as in a
 * bucket. A member counts if its owner is the living process of its slot.
 */
struct vgpu_region_member {
	uint32_t owner;     /* 1 + slot, and the low bits of the slot's claims above; 0: free */
	uint32_t device;    /* in the region */
	uint32_t in_flight; /* whether the device has, or may have, work of the process: below */
	uint32_t progress;  /* how often the process saw all of its work end */
	uint64_t seen;      /* when the process last looked whether `in_flight` is true */
	uint64_t began;     /* when `in_flight` became 1 last */
	uint64_t ended;     /* when the work was over that was in flight before it became 0 last */
	union {
		uint64_t ready; /* when the device's bucket will have recovered, and the device can
				 * be the slice's; 0: both are so. VGPU_MEMBER_FOR_TURN: below */
		uint64_t waits; /* in a device's group: since when a launch of the process waits;
				 * 0: none does */
	};
	uint64_t slice; /* in a gang of several slices, the key that the member's slice has in files
			   of turns; in a device's group, VGPU_MEMBER_OF_DEVICE + the device; else 0
			 */
	union {
		/* low half: how many the process has launched since the gang opened; high half: the
		 * low half of the opened_at that they are of */
		uint64_t collectives;
		/* in a device's group: until when the work in flight will have ended, as the
		 * process estimates; 0: not known */
		uint64_t expected;
	};
};

/* Values of in_flight; 0: no work. */
#define VGPU_MEMBER_IN_FLIGHT 1 /* the group pays for the work */
#define VGPU_MEMBER_CLAIMS    2 /* the slice's turns pay for it, or the process is about to launch */

/* A bit of `ready`: a launch of the member waits for its device's turn. While the gang is open, the
 * others wait for it until the time in `ready` at most. */
#define VGPU_MEMBER_FOR_TURN ((uint64_t)1)

#define VGPU_GANG_MEMBERS_MAX 28
#define VGPU_GANG_OWNER_SLOTS 11 /* the bits of `owner` that hold 1 + slot */

#define VGPU_MEMBER_OF_DEVICE ((uint64_t)1 << 63)

/* The state that the members of a group share. */
struct vgpu_region_group {
	uint64_t used_ns; /* for how long any member had work in flight, in all; of a device: 0 */
	uint64_t counted; /* until when used_ns is known; of a device, until when the bucket has
			   * paid; 0: never */
	uint64_t shut_at; /* since when the group is shut; 0: it is open */
	uint64_t closing_ns; /* how long it takes from shut_at until no member has work in flight */
	uint32_t members;    /* of the gang: entries below it have been used, a high-water mark */
	uint32_t cut;        /* 1: while it is shut, no member had work in flight at once */
	uint64_t opened_at;  /* when it was last opened */
	uint64_t met_at;     /* of a device: when the launching process was last another one than
			      * before; 0: never */
	uint32_t launcher; /* of a device: 1 + the slot of the process that was last seen to launch
			    */
	uint32_t holder;   /* of a device: 1 + the entry of the member whose work goes alone; 0:
			    * none. The high bit: another member waits */
};

struct vgpu_region_gang {
	struct vgpu_region_group group;
	uint64_t turnless_until; /* the gang takes no turns until then; 0: it does */
	uint64_t turned_at;      /* when a launch of the gang last asked for a turn; 0: never */
	uint64_t spare[6];
	struct vgpu_region_member member[VGPU_GANG_MEMBERS_MAX]; /* of all groups */
};

struct vgpu_region_slot {
	/* How many processes have had this slot, or its byte. Together with the slot, the number
	 * identifies one process for good. The process that has the slot's byte locked increments
	 * it, before it takes the region's lock. */
	uint64_t claims;
	uint64_t
		pid_namespace; /* inode of the one that `pid` is of; 0 where it was not to be had */
	int32_t exiting_pid;   /* not 0: the process of this pid has begun to exit; see above */
	uint32_t spare_word;
	uint64_t joint_gang; /* identifies the gang of several slices that the process is in; 0:
				none */
	/* Low 16 bits: a bit for each device on which the charge for the process's contexts is a
	 * guess. Above them: when the newest guess began, milliseconds of CLOCK_MONOTONIC. */
	uint64_t guess;
	uint64_t spare[3];
};

#define VGPU_SHARES_MAX 480

enum vgpu_share_state {
	VGPU_SHARE_FREE = 0,   /* its other fields mean nothing */
	VGPU_SHARE_EXPORT = 1, /* the slot holds memory, charged to it, that others can import */
	VGPU_SHARE_MOVED = 2,  /* the same, after its exporter freed it: the slot imports it */
	VGPU_SHARE_IMPORT = 3, /* the slot has opened it; the charge is another entry, `of` */
	VGPU_SHARE_KEPT = 4,   /* a charge: file descriptors alone keep it; in the offset class */
};

/* Memory that processes of the slice share, and the slot of one of these processes. The memory is
 * charged once. */
struct vgpu_region_share {
	uint64_t key; /* a hash of the exported handle, never 0. Of file descriptors, a number with
			 bit 62 alone of the highest two, and zeros in the lowest six */
	uint64_t bytes; /* in the slot's data class, or offset; 0 in an import */
	uint32_t claim; /* the low bits of own.slots[slot].claims: which of the slot's processes */
	uint32_t count; /* of an import: how often it is open; of file descriptors' memory: a hash
			   of their inode */
	uint16_t slot;
	uint16_t of;    /* of an import: the index of the entry that has the charge */
	uint8_t state;  /* enum vgpu_share_state */
	uint8_t device; /* which one the memory is on */
	uint8_t pad[2];
};

/* A charge that moves from one slot to another, written down before anything of it is done. All
 * figures are the ones after the move. So the move can be repeated, however far it came. */
struct vgpu_region_move {
	uint64_t bytes;     /* in shares[share] */
	uint64_t from_data; /* slots[from].used[device].data */
	uint64_t to_data;   /* slots[to].used[device].data */
	uint32_t to_claim;
	uint16_t share, from, to, device;
	uint32_t active; /* 1: it has begun; stored last. Only ever while somebody has the lock */
	uint64_t spare[3];
};

struct vgpu_region_own {
	uint64_t magic; /* VGPU_REGION_MAGIC */
	uint32_t version;
	uint32_t size;        /* of the whole file, bytes */
	uint32_t lock;        /* 0 free; else who has it: VGPU_LOCK_SLOT_MASK and below */
	uint32_t takeovers;   /* how often the lock was taken from a dead holder */
	uint32_t share_count; /* shares below it have been used: a high-water mark */
	uint32_t made;        /* tells this making of the file from any other of it */
	uint32_t paused;      /* 1: the slice is paused; new slots are VGPU_SLOT_SUSPENDED */
	uint32_t spare_word;
	uint64_t path; /* where the file was when it was made or reset: FNV-1a of its absolute path;
			  0: not known */
	uint64_t spare[2];
	struct vgpu_region_device device[VGPU_DEVICES_MAX];
	struct vgpu_region_move move;
	struct vgpu_region_gang gang;
	struct vgpu_region_slot slots[VGPU_SLOTS_MAX];
	struct vgpu_region_share shares[VGPU_SHARES_MAX];
	struct vgpu_region_waits waits[VGPU_DEVICES_MAX]; /* 64 bytes each */
};

/* own.lock: 1 + the holder's slot, the low bits of that slot's claims, and whether somebody waits.
 * A slot that is free may hold it as well: one whose byte a monitor borrowed. */
#define VGPU_LOCK_SLOT_MASK 0x000007ffu
#define VGPU_LOCK_WAITERS   0x80000000u

struct vgpu_region_file {
	struct vgpu_hami_region hami;
	uint8_t pad[136];
	struct vgpu_region_group group[VGPU_DEVICES_MAX]; /* 64 bytes each */
	struct vgpu_region_turn turn[VGPU_DEVICES_MAX];   /* 64 bytes each */
	struct vgpu_region_own own;
};

/* Bytes of the file that are locked, not read. A slot's own first byte is locked for its process's
 * life, and the file's first byte while the region is made. */
#define VGPU_SLOT_LOCK_OFFSET \
	(VGPU_REGION_OFFSET + offsetof(struct vgpu_region_own, slots)) /* + slot */
#define VGPU_INIT_LOCK_OFFSET 0

/* -- gangs of several slices ------------------------------------------------------------------ */

/*
 * Slices whose policies name the same gang share a file in a directory of their own. It is locked
 * and made as a region is. The byte VGPU_INIT_LOCK_OFFSET is locked while the file is made, and
 * while a process takes an entry. For each member a byte, VGPU_GANG_LOCK_OFFSET + its entry, is
 * locked for the life of its process. It is a gang's file if and only if it has its full size and
 * its magic, which is stored last. `owner` of a member is 1 + entry in VGPU_GANG_OWNER_SLOTS bits.
 * Above them is a number that differs from that of the entry's former owner. `device` counts in the
 * member's own region.
 */
#define VGPU_GANG_MAGIC   0x3130474e41475056ull /* "VPGANG01" in the file's first eight bytes */
#define VGPU_GANG_VERSION 1

struct vgpu_gang_file {
	uint64_t magic; /* VGPU_GANG_MAGIC */
	uint32_t version;
	uint32_t size; /* of the whole file, bytes */
	uint32_t made; /* tells this making of the file from any other of it */
	uint32_t spare_word;
	uint64_t spare[13];
	struct vgpu_region_gang gang;
	uint8_t pad[2048]; /* nothing: bytes to lock */
};

#define VGPU_GANG_LOCK_OFFSET offsetof(struct vgpu_gang_file, pad) /* + entry */

_Static_assert(sizeof(struct vgpu_hami_usage) == 64, "layout");
_Static_assert(sizeof(struct vgpu_hami_util) == 48, "layout");
_Static_assert(sizeof(struct vgpu_hami_slot) == 1960, "layout");
_Static_assert(sizeof(struct vgpu_hami_region) == 2008952, "layout");
_Static_assert(offsetof(struct vgpu_region_file, own) == VGPU_REGION_OFFSET, "layout");
_Static_assert(sizeof(struct vgpu_region_bucket) == 64, "layout");
_Static_assert(sizeof(struct vgpu_region_turn) == 64, "layout");
_Static_assert(sizeof(struct vgpu_region_waits) == 64, "layout");
_Static_assert(offsetof(struct vgpu_region_file, turn) == 2010112, "layout");
_Static_assert(sizeof(struct vgpu_region_share) == 32, "layout");
_Static_assert(sizeof(struct vgpu_region_member) == 64, "layout");
_Static_assert(sizeof(struct vgpu_region_group) == 64, "layout");
_Static_assert(offsetof(struct vgpu_region_file, group) == 2009088, "layout");
_Static_assert(sizeof(struct vgpu_region_gang) == 1920, "layout");
_Static_assert(sizeof(struct vgpu_gang_file) == 4096, "layout");
_Static_assert(VGPU_GANG_LOCK_OFFSET == 2048, "layout");
_Static_assert(sizeof(struct vgpu_region_move) == 64, "layout");
_Static_assert(offsetof(struct vgpu_region_own, slots) == 4096, "layout");
_Static_assert(offsetof(struct vgpu_region_own, shares) == 69632, "layout");
_Static_assert(offsetof(struct vgpu_region_own, waits) == 84992, "layout");
_Static_assert(sizeof(struct vgpu_region_own) == 86016, "layout");
