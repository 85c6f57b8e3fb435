/*
 * The turns of a GPU: one file a GPU, mapped by every process of every slice that uses the GPU.
 * This header is its layout and nothing else. src/turn/ works on it, docs/design/turns.md explains
 * it.
 *
 *        offset      bytes
 *             0      4,096   the header: magic, version, size; the turn word; which slices are
 *                            present
 *         4,096     65,536   64 slices, 1,024 bytes each
 *        69,632    262,144   4,096 seats, 64 bytes each: a seat is one process
 *       331,776              the end: whole pages
 *
 * A file is one of turns if and only if it has its full size and its magic, which is stored last.
 * While a process makes the file, or takes a seat, it has the byte VGPU_TURNS_INIT_OFFSET locked by
 * an open-file-description lock (fcntl(2)). A process has the byte VGPU_TURNS_LOCK_OFFSET + slice ×
 * VGPU_TURNS_SEATS + seat locked for its life. So one question to the kernel shows whether a
 * process of a slice lives, and one shows whether the process of a seat lives. These bytes are
 * after the end of the file: they are locked, never read.
 *
 * Every word is stored whole, and no lock protects any of them. Every process may write every word,
 * also with bad intent. So a reader checks each value where it is used. It compares an index with
 * its array, and a time with the present time and the longest possible distance. A nonsensical
 * value costs a slice a bounded delay (turn.h). Times are nanoseconds of clock_steady_ns()
 * (base/clock.h), unless the field says otherwise.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define VGPU_TURNS_MAGIC   0x31304e5255545056ull /* "VPTURN01" in the file's first eight bytes */
#define VGPU_TURNS_VERSION 1
#define VGPU_TURNS_SLICES  64
#define VGPU_TURNS_SEATS   4096
#define VGPU_TURNS_FREE    VGPU_TURNS_SLICES /* as the holder: no slice has the turn */

/*
 * The turn word. A hand-over is one compare-and-swap of it.
 *
 *     bits  0 to  6   1 + the slice that has the turn; 0: none has
 *     bit        7    VGPU_TURNS_SHARED: another slice is present, so the holder has to ask
 *     bits  8 to 31   a count of the turns, so that no value of the word comes back soon
 *     bits 32 to 63   when the turn begins, in units of 1,024 ns: the low 32 bits of it
 *
 * A turn may begin in the future: the device then is busy until that time.
 */
#define VGPU_TURNS_HOLDER      0x7fu
#define VGPU_TURNS_SHARED      0x80u
#define VGPU_TURNS_COUNT_SHIFT 8
#define VGPU_TURNS_BEGIN_SHIFT 32
#define VGPU_TURNS_TIME_SHIFT  10

struct vgpu_turns_header {
	uint64_t magic; /* VGPU_TURNS_MAGIC */
	uint32_t version;
	uint32_t size; /* of the whole file, bytes */
	uint32_t made; /* identifies this making of the file; not 0 */
	uint32_t spare_word;
	uint64_t pressure_ns; /* vgpud's: a turn's least length, as each moves memory; 0: none */
	uint64_t spare[4];
	uint64_t turn;     /* at offset 64: the turn word */
	uint64_t present;  /* bit i: slice i wants the GPU, or has wanted it in the last second */
	uint64_t moved_ns; /* by how much begins of turns were moved back, in all; modulo 2^64 */
	uint64_t pad[501];
};

/*
 * One slice: its wishes, and its turns so far. The processes of the slice write it; others write
 * `idle_since` of a slice that did not take a turn up, and `bell`. A slice wants the GPU if and
 * only if its bit in `present` is 1 and its `idle_since` is 0.
 */
struct vgpu_turns_slice {
	uint64_t key;         /* identifies the slice; 0: the entry is free */
	uint32_t weight;      /* 1 to 100: its part of the GPU among those that want it */
	uint32_t assured_pct; /* 1 to 99: its quota where all want the GPU; 100: it has none, and
				 gets the rest that the others leave */
	uint32_t bell;        /* a futex: counts the turns given to it, and other wake-ups */
	uint32_t spare_word;
	uint64_t wants_since; /* when it began to want the GPU */
	uint64_t idle_since;  /* since when it has had no work and wanted nothing; 0: it wants */
	uint64_t busy_until;  /* when all that it has submitted should be over */
	uint64_t seen;        /* when it last asked, or submitted work, while it had the turn */
	uint64_t used_ns;     /* the time of its turns, in all */
	uint64_t weighted_ns; /* the same divided by its weight in percent: the least is next */
	uint64_t burst_ns;    /* what it uses from when it wants the GPU until it is idle, about */
	uint64_t burst_from;  /* used_ns when it last began to want the GPU */
	uint64_t turns;       /* how many it has had */
	uint64_t waited_ns;   /* for how long it waited for them, in all */
	uint64_t words;       /* bit i: seats[i] may be other than 0 */
	uint64_t quiet_from;  /* if it has the turn, it counts as idle from then on: its host does
			       * something else; 0: it does not */
	uint64_t wish_from;   /* a gang's: it wants no turn before that time, and then the next one;
			       * 0: it has no such wish */
	uint64_t least_ns;    /* a gang's: its turn lasts at least so long; 0: any turn will do */
	uint64_t spare[47];
	uint64_t seats[VGPU_TURNS_SEATS / 64]; /* bit s: the seat s is one of its processes' */
};

struct vgpu_turns_seat {
	uint32_t owner;  /* 1 + slice in VGPU_TURNS_HOLDER, a number above it; 0: free */
	uint32_t active; /* 1: the process wants the GPU, or has work in flight */
	uint64_t spare[7];
};

struct vgpu_turns_file {
	struct vgpu_turns_header header;
	struct vgpu_turns_slice slice[VGPU_TURNS_SLICES];
	struct vgpu_turns_seat seat[VGPU_TURNS_SEATS];
};

#define VGPU_TURNS_INIT_OFFSET 0
#define VGPU_TURNS_LOCK_OFFSET \
	sizeof(struct vgpu_turns_file) /* + slice * VGPU_TURNS_SEATS + seat */

_Static_assert(offsetof(struct vgpu_turns_header, turn) == 64, "layout");
_Static_assert(sizeof(struct vgpu_turns_header) == 4096, "layout");
_Static_assert(sizeof(struct vgpu_turns_slice) == 1024, "layout");
_Static_assert(offsetof(struct vgpu_turns_slice, seats) == 512, "layout");
_Static_assert(sizeof(struct vgpu_turns_seat) == 64, "layout");
_Static_assert(sizeof(struct vgpu_turns_file) == 331776, "layout");
