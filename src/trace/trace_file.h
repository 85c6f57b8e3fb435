/*
 * A trace: a file for each process that was started with VGPU_TRACE. Its name is the region's path,
 * ".trace." and the number of the process's slot. It holds a header, the names of the driver's
 * functions that entries refer to, and a ring of TRACE_ENTRIES entries, of which each is one event.
 * A process that takes the slot later, and traces, makes a new file in the place of the old one.
 *
 * Entry number n of a process (from 0) is at n modulo TRACE_ENTRIES. A writer stores 0 in `kind`,
 * then the other fields, and then `lap` and `kind` together: n / TRACE_ENTRIES, its low 16 bits. So
 * an entry is whole if `kind` is not 0, `lap` is that of its number, and a second reading gives the
 * same. A process that is killed while it writes leaves an entry of kind 0.
 */
#pragma once

#include <stdint.h>

#define TRACE_ENTRIES  4096
#define TRACE_CALLS    128 /* names of functions; number 0 is none */
#define TRACE_CALL_LEN 40
#define TRACE_MAGIC    0x3265636172746776u /* "vgtrace2", little-endian */
#define TRACE_SUFFIX   ".trace."

/* The subjects, by their names in VGPU_TRACE: which kinds of events are written. */
#define TRACE_SUBJECTS(SUBJECT) \
	SUBJECT(PACE, "pace") SUBJECT(MEMORY, "memory") SUBJECT(REGION, "region")

enum trace_subject {
#define SUBJECT(name, word) TRACE_##name,
	TRACE_SUBJECTS(SUBJECT)
#undef SUBJECT
		TRACE_SUBJECT_COUNT
};

/* The kinds of subject s are numbered from s * TRACE_KINDS_OF_SUBJECT + 1 on. */
#define TRACE_KINDS_OF_SUBJECT 64

/* Why: with "refused" and others. Numbers stay; new ones are added at the end. */
#define TRACE_REASONS(REASON)                                                                 \
	REASON(QUOTA, "quota", "the slice has no room within its limit")                      \
	REASON(DEVICE, "device", "the driver has no room")                                    \
	REASON(ACCOUNTS, "accounts", "it took more than was reserved, or cannot be recorded") \
	REASON(LOCK, "lock", "a living process keeps the region locked")                      \
	REASON(LOST, "lost", "the region is lost")                                            \
	REASON(MOVING, "moving", "the process allocated or freed meanwhile")                  \
	REASON(SILENT, "silent", "NVML gives no figure for the process")                      \
	REASON(OTHER, "other", "another error")

enum trace_reason {
	TRACE_NO_REASON,
#define REASON(name, word, text) TRACE_REASON_##name,
	TRACE_REASONS(REASON)
#undef REASON
		TRACE_REASONS_END
};

/*
 * The kinds of each subject. Each has a name, which `vgpu trace --json` shows and which never
 * changes. It also has the names of the figures a, b and c there (NULL: there is none), and words
 * for people. A figure whose name ends in _ns is a time; a took_ns or overdue_ns of -1 is not
 * known. A figure whose name ends in _bytes is an amount of memory. New kinds are added at the end
 * of their subject: numbers stay, too.
 */
#define TRACE_PACE_KINDS(KIND)                                                                     \
	KIND(CHARGED, "charged", "cost_ns", "level_ns", NULL, "launch admitted and charged")       \
	KIND(CHARGED_LATER, "charged-later", "cost_ns", "level_ns", NULL,                          \
	     "launch admitted; its cost is not known, and is charged when it is over")             \
	KIND(CHARGED_MANY, "charged-many", "cost_ns", "launches", NULL,                            \
	     "launches of a lease charged together")                                               \
	KIND(HELD_SHUT, "held-shut", "level_ns", "wait_ns", NULL,                                  \
	     "launch held: the bucket is shut")                                                    \
	KIND(HELD_CHARGING, "held-charging", "level_ns", NULL, NULL,                               \
	     "launch held: the launch of another thread is not charged yet")                       \
	KIND(HELD_OVERDUE, "held-overdue", "overdue_ns", "patience_ns", NULL,                      \
	     "launch held: earlier work is overdue")                                               \
	KIND(HELD_UNKNOWN, "held-unknown", "patience_ns", NULL, NULL,                              \
	     "launch held: earlier work has a cost that is not known yet")                         \
	KIND(RELEASED, "released", "held_ns", "level_ns", NULL, "held launch admitted")            \
	KIND(GAVE_UP, "gave-up", "waited_ns", "level_ns", NULL,                                    \
	     "patience with earlier work is at an end; the time waited is charged")                \
	KIND(BUCKET_SHUT, "bucket-shut", "level_ns", NULL, NULL, "the bucket shuts")               \
	KIND(BUCKET_OPENED, "bucket-opened", "shut_ns", "level_ns", NULL, "the bucket opens")      \
	KIND(CORRECTED, "corrected", "more_ns", "level_ns", NULL, "the charge is corrected")       \
	KIND(SAMPLE, "sample", "took_ns", "more_ns", NULL, "one launch measured")                  \
	KIND(WINDOW, "window", "took_ns", "more_ns", NULL, "many launches measured together")      \
	KIND(GANG_JOINED, "gang-joined", "members", NULL, NULL, "the device joins the gang")       \
	KIND(GANG_CHARGED, "gang-charged", "cost_ns", "level_ns", NULL,                            \
	     "the gang's time is charged")                                                         \
	KIND(GANG_SHUT, "gang-shut", "level_ns", NULL, NULL, "the gang shuts")                     \
	KIND(GANG_HELD, "gang-held", "level_ns", "wait_ns", NULL, "launch held: the gang is shut") \
	KIND(GANG_GOES_ON, "gang-goes-on", "level_ns", "in_flight", NULL,                          \
	     "launch admitted: the gang is shut, and another member has work in flight")           \
	KIND(GANG_CUT, "gang-cut", "shut_ns", "wait_ns", NULL,                                     \
	     "launch held: all members of the shut gang are idle")                                 \
	KIND(GANG_OPENED, "gang-opened", "shut_ns", "level_ns", NULL, "the gang opens")            \
	KIND(GANG_LET_GO, "gang-let-go", "quiet_ns", "times", NULL,                                \
	     "launch admitted: the gang is shut, and makes no progress")                           \
	KIND(GANG_AHEAD, "gang-ahead", "ahead_ns", NULL, NULL,                                     \
	     "launch held: the gang is open, and much is in flight before it")                     \
	KIND(TURNS_BEGIN, "turns-begin", "in_flight_ns", NULL, NULL,                               \
	     "another slice uses the device: launches go by turns")                                \
	KIND(TURN_HELD, "turn-held", "wait_ns", NULL, NULL,                                        \
	     "launch held: the slice has not the turn, or enough in flight")                       \
	KIND(TURN_GOES, "turn-goes", "held_ns", NULL, NULL, "held launch admitted by a turn")      \
	KIND(TURNS_END, "turns-end", "in_flight_ns", NULL, NULL,                                   \
	     "no other slice uses the device, or there are no turns")                              \
	KIND(GANG_TURN, "gang-turn", "after_ns", NULL, NULL,                                       \
	     "a turn begins on the open gang's device")                                            \
	KIND(GANG_TURN_OVER, "gang-turn-over", "after_ns", "had", NULL,                            \
	     "the turn of the open gang's device is over, or does not begin")                      \
	KIND(GANG_TURNLESS, "gang-turnless", "used_ns", "of_ns", NULL,                             \
	     "the gang's hosts are slower than its devices: it takes no turns for a while")        \
	KIND(GANG_SHARES, "gang-shares-device", NULL, NULL, NULL,                                  \
	     "another slice of the gang uses the device: the gang takes no turns for a while")     \
	KIND(GANG_DATE, "gang-date", "wait_ns", "has_word", NULL,                                  \
	     "the device could be the shut gang's")

#define TRACE_MEMORY_KINDS(KIND)                                                                  \
	KIND(CHARGE, "memory-charged", "bytes", "used_bytes", "limit_bytes", "memory is charged") \
	KIND(CHARGE_FAILED, "memory-not-charged", "bytes", "used_bytes", "limit_bytes",           \
	     "memory cannot be charged")                                                          \
	KIND(REFUND, "memory-returned", "bytes", "used_bytes", NULL, "a charge is refunded")      \
	KIND(ALLOCATED, "allocated", "bytes", "charged_bytes", NULL, "allocation made")           \
	KIND(CANCELLED, "cancelled", "bytes", NULL, NULL, "allocation not made")                  \
	KIND(FREED, "freed", "bytes", "charged_bytes", NULL, "allocation freed")                  \
	KIND(REFUSED, "refused", "bytes", "used_bytes", "limit_bytes", "call refused")            \
	KIND(ROOM, "room-made", "room_bytes", "took_ns", NULL,                                    \
	     "there was no room: unused memory of the slice was refunded")                        \
	KIND(COMPARED, "compared", "nvml_bytes", "accounts_bytes", "change_bytes",                \
	     "the accounts are compared with NVML")

#define TRACE_REGION_KINDS(KIND)                                                              \
	KIND(JOINED, "joined", "slot", "living", NULL, "the process joins the slice")         \
	KIND(EXITING, "exiting", "slot", "bytes", NULL, "the process begins to exit")         \
	KIND(LEFT, "left", "slot", NULL, NULL, "the process leaves the slice")                \
	KIND(CLEARED, "dead-cleared", "slot", "dead_pid", "bytes",                            \
	     "the slot of a dead process is cleared")                                         \
	KIND(TAKEN_OVER, "lock-taken-over", "slot", NULL, NULL,                               \
	     "the lock is taken over from a dead process")                                    \
	KIND(REPAIRED, "repaired", "cleared", "took_ns", NULL, "the region is repaired")      \
	KIND(WAITED_DYING, "waited-for-dying", "waited_ns", NULL, NULL,                       \
	     "waited for the memory of dead processes")                                       \
	KIND(LIMIT, "limit", "before_bytes", "limit_bytes", NULL, "the memory limit changes") \
	KIND(LOST, "region-lost", "error", NULL, NULL, "the region is lost")

enum trace_kind {
	TRACE_NONE,
#define KIND(name, word, a, b, c, text) TRACE_##name,
	TRACE_PACE_KINDS(KIND) TRACE_PACE_KINDS_END,
	TRACE_MEMORY_KINDS_BEGIN = TRACE_MEMORY * TRACE_KINDS_OF_SUBJECT,
	TRACE_MEMORY_KINDS(KIND) TRACE_MEMORY_KINDS_END,
	TRACE_REGION_KINDS_BEGIN = TRACE_REGION * TRACE_KINDS_OF_SUBJECT,
	TRACE_REGION_KINDS(KIND) TRACE_REGION_KINDS_END,
#undef KIND
};

struct trace_entry {
	uint64_t at;     /* clock_steady_ns() (base/clock.h) */
	int64_t a, b, c; /* the figures */
	uint32_t thread; /* gettid(2), in the process's pid namespace */
	uint16_t call;  /* the driver's function that the thread called: a number of a name, or 0 */
	uint8_t reason; /* enum trace_reason */
	uint8_t class;  /* 1 + enum region_class (region/region.h), of a charge; or 0 */
	uint32_t spare;
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
	char call[TRACE_CALLS][TRACE_CALL_LEN]; /* NUL-terminated; written once each */
	struct trace_entry entry[TRACE_ENTRIES];
};

_Static_assert(sizeof(struct trace_entry) == 48, "layout");
_Static_assert(sizeof(struct trace_file) == 64 + TRACE_CALLS * TRACE_CALL_LEN + 48 * TRACE_ENTRIES,
	       "layout");
_Static_assert((int)TRACE_PACE_KINDS_END <= TRACE_KINDS_OF_SUBJECT, "layout");
_Static_assert((int)TRACE_MEMORY_KINDS_END <= 2 * TRACE_KINDS_OF_SUBJECT, "layout");
_Static_assert((int)TRACE_REGION_KINDS_END <= 3 * TRACE_KINDS_OF_SUBJECT, "layout");
