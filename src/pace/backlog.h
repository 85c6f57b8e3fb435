/*
 * Work that a process has submitted to a device, by its cost: the sum of charges, the part of it
 * that was compared with measurements, and when the device should have finished.
 *
 * Each process has its own. If two processes of a slice share the device, the measurements of each
 * contain the other's work, and neither knows how much. But each knows when it had no work there
 * itself. Words are atomic, and changed one by one. Times are clock_steady_ns().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct backlog {
	int64_t charged;     /* sum of learned costs, ns */
	int64_t sure;        /* the part of it that certainly keeps the device busy, ns */
	int64_t corrected;   /* sum of the corrections by measurements, ns */
	int64_t measured;    /* up to which value `charged` was compared */
	uint64_t busy_until; /* until when the device is certainly busy */
	uint64_t due;        /* when all of the work should have finished */
	uint64_t idle;       /* for how long the process had no work there, ns */
};

/* Adds work of that cost, which keeps the device busy for sure_ns at least. */
void backlog_charge(struct backlog *backlog, uint64_t cost_ns, uint64_t sure_ns, uint64_t now_ns);

/* Work of one thread that is added to the backlog later, all at once. */
struct backlog_many {
	uint64_t from_ns, until_ns;            /* busy_until without and with that work */
	uint64_t idle_ns, charged_ns, sure_ns; /* to be added to idle, charged and sure */
};
struct backlog_many backlog_many_begin(const struct backlog *backlog);
/* Whether no other thread has added work since, and nothing was corrected. */
bool backlog_many_is_alone(const struct backlog *backlog, const struct backlog_many *many);
void backlog_many_add(struct backlog_many *many, uint64_t cost_ns, uint64_t sure_ns,
		      uint64_t now_ns);
/* Adds `many`. now_ns: when its last launch was submitted. If the backlog has changed since
 * backlog_many_begin(), the work counts as finished at now_ns. */
void backlog_charge_many(struct backlog *backlog, const struct backlog_many *many, uint64_t now_ns);

/* For devices that are paced by wall time, where costs are not used. The process had work on the
 * device from *shown_ns until until_ns. *shown_ns becomes until_ns. device_util is computed from
 * this. */
void backlog_show(struct backlog *backlog, uint64_t *shown_ns, uint64_t until_ns);

/* The submitted work takes more_ns longer than charged; negative: less long. */
void backlog_correct(struct backlog *backlog, int64_t more_ns);

/* Whether all submitted work should have finished by now, by its costs. The next two functions
 * correct the backlog: the device was found busy, or idle, against that estimate. */
bool backlog_is_idle(const struct backlog *backlog, uint64_t now_ns);
void backlog_set_busy(struct backlog *backlog, uint64_t now_ns);
void backlog_set_idle(struct backlog *backlog, uint64_t now_ns);
/* The device was not idle a moment ago: it counts as busy until `due` or now_ns, whichever is
 * earlier. */
void backlog_extend_to_due(struct backlog *backlog, uint64_t now_ns);
/* The device has not reached the work that was submitted after `sure` had the given value. Overdue
 * work stays overdue: `due` does not change, and may be earlier than busy_until. */
void backlog_extend_after(struct backlog *backlog, int64_t sure, uint64_t now_ns);

/* How long the device will certainly be busy from now, ns. */
uint64_t backlog_ahead_ns(const struct backlog *backlog, uint64_t now_ns);

/* When all submitted work should have finished. */
uint64_t backlog_due_ns(const struct backlog *backlog);

/* For how long the process had no work on the device until now, ns. */
uint64_t backlog_idle_ns(const struct backlog *backlog, uint64_t now_ns);

/*
 * The device worked busy_ns on the work between two values of `charged`. Returns what is to be
 * added to the charge. If measurements overlap, each counts for the part that no other has
 * measured. busy_ns < 0: the charge was right.
 */
int64_t backlog_compare(struct backlog *backlog, int64_t from, int64_t to, int64_t busy_ns);
