/*
 * The pacer's trace: a file for each process that was started with VGPU_TRACE=pace. Its name is the
 * region's path, ".trace." and the number of the process's slot. It holds a header and a ring of
 * TRACE_ENTRIES entries, of which each is one decision of the pacer. A process that takes the slot
 * later, and traces, makes a new file in the place of the old one.
 *
 * Entry number n of a process (from 0) is at n modulo TRACE_ENTRIES. A writer stores 0 in `kind`,
 * then the other fields, and then `lap` and `kind` together: n / TRACE_ENTRIES, its low 16 bits. So
 * an entry is whole if `kind` is not 0 and `lap` is that of its number, and if it is the same when
 * it is read a second time. A process that is killed while it writes leaves an entry of kind 0.
 */
#pragma once

#include <stdint.h>

#define TRACE_ENTRIES 4096
#define TRACE_MAGIC   0x3165636172746776u /* "vgtrace1", little-endian */
#define TRACE_SUFFIX  ".trace."

/*
 * The decisions: a name, which `vgpu trace --json` shows and which never changes, what its figures
 * a and b are called there, and words for people. A figure whose name ends in _ns is a time; a
 * took_ns or overdue_ns of -1 is not known. New ones are added at the end: numbers stay, too.
 */
#define TRACE_KINDS(KIND)                                                                       \
	KIND(CHARGED, "charged", "cost_ns", "level_ns", "launch admitted and charged")          \
	KIND(CHARGED_LATER, "charged-later", "cost_ns", "level_ns",                             \
	     "launch admitted; its cost is not known, and is charged when it is over")          \
	KIND(CHARGED_MANY, "charged-many", "cost_ns", "launches",                               \
	     "launches of a lease charged together")                                            \
	KIND(HELD_SHUT, "held-shut", "level_ns", "wait_ns", "launch held: the bucket is shut")  \
	KIND(HELD_TURN, "held-turn", "level_ns", NULL,                                          \
	     "launch held: another thread that waited goes first")                              \
	KIND(HELD_OVERDUE, "held-overdue", "overdue_ns", "patience_ns",                         \
	     "launch held: earlier work is overdue")                                            \
	KIND(HELD_UNKNOWN, "held-unknown", "patience_ns", NULL,                                 \
	     "launch held: earlier work has a cost that is not known yet")                      \
	KIND(RELEASED, "released", "held_ns", "level_ns", "held launch admitted")               \
	KIND(GAVE_UP, "gave-up", "waited_ns", "level_ns",                                       \
	     "patience with earlier work is at an end; the time waited is charged")             \
	KIND(BUCKET_SHUT, "bucket-shut", "level_ns", NULL, "the bucket shuts")                  \
	KIND(BUCKET_OPENED, "bucket-opened", "shut_ns", "level_ns", "the bucket opens")         \
	KIND(CORRECTED, "corrected", "more_ns", "level_ns", "the charge is corrected")          \
	KIND(SAMPLE, "sample", "took_ns", "more_ns", "one launch measured")                     \
	KIND(WINDOW, "window", "took_ns", "more_ns", "many launches measured together")         \
	KIND(GANG_JOINED, "gang-joined", "members", NULL, "the device joins the gang")          \
	KIND(GANG_CHARGED, "gang-charged", "cost_ns", "level_ns", "the gang's time is charged") \
	KIND(GANG_SHUT, "gang-shut", "level_ns", NULL, "the gang shuts")                        \
	KIND(GANG_HELD, "gang-held", "level_ns", "wait_ns", "launch held: the gang is shut")    \
	KIND(GANG_GOES_ON, "gang-goes-on", "level_ns", "in_flight",                             \
	     "launch admitted: the gang is shut, and another member has work in flight")        \
	KIND(GANG_CUT, "gang-cut", "shut_ns", "wait_ns",                                        \
	     "launch held: all members of the shut gang are idle")                              \
	KIND(GANG_OPENED, "gang-opened", "shut_ns", "level_ns", "the gang opens")               \
	KIND(GANG_LET_GO, "gang-let-go", "quiet_ns", "times",                                   \
	     "launch admitted: the gang is shut, and makes no progress")                        \
	KIND(GANG_AHEAD, "gang-ahead", "ahead_ns", NULL,                                        \
	     "launch held: the gang is open, and much is in flight before it")                  \
	KIND(TURNS_BEGIN, "turns-begin", "in_flight_ns", NULL,                                  \
	     "another slice uses the device: launches go by turns")                             \
	KIND(TURN_HELD, "turn-held", "wait_ns", NULL,                                           \
	     "launch held: the slice has not the turn, or enough in flight")                    \
	KIND(TURN_GOES, "turn-goes", "held_ns", NULL, "held launch admitted by a turn")         \
	KIND(TURNS_END, "turns-end", "in_flight_ns", NULL,                                      \
	     "no other slice uses the device, or there are no turns")

enum trace_kind {
	TRACE_NONE,
#define KIND(name, word, a, b, text) TRACE_##name,
	TRACE_KINDS(KIND)
#undef KIND
		TRACE_KINDS_END
};

struct trace_entry {
	uint64_t at;     /* clock_steady_ns() (base/clock.h) */
	int64_t a, b;    /* the figures */
	uint32_t thread; /* gettid(2), in the process's pid namespace */
	uint16_t lap;
	uint8_t kind;
	int8_t device; /* its number in the region; -1: none */
};

struct trace_file {
	uint64_t magic;
	uint32_t entry_size, entry_count;
	int32_t pid; /* in the process's pid namespace */
	uint32_t slot;
	uint64_t begun; /* as an entry's time */
	uint64_t next;  /* how many entries were begun, ever; atomic */
	uint64_t spare[3];
	struct trace_entry entry[TRACE_ENTRIES];
};

_Static_assert(sizeof(struct trace_entry) == 32, "layout");
_Static_assert(sizeof(struct trace_file) == 64 + 32 * TRACE_ENTRIES, "layout");
