/*
 * What a process has given a device to do: by costs, how much of it was compared with what was
 * measured, and when the device should be through with it.
 *
 * It is the process's own. Two of a slice that take turns on the device are each in the other's
 * measurements, and neither can tell how much; but each knows when it had nothing to do there.
 * Words are atomic, and changed one by one. Times are clock_steady_ns().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct tally {
	int64_t charged;     /* by learned costs, in all, ns */
	int64_t sure;        /* what of that is sure to keep the device busy */
	int64_t corrected;   /* what measuring has added to that, in all */
	int64_t measured;    /* how far up `charged` was compared */
	uint64_t busy_until; /* until when the device is sure to be busy */
	uint64_t due;        /* when all of it should be done */
	uint64_t idle;       /* how long there was nothing, in all, ns */
};

/* Work of that cost was submitted, which takes the device sure_ns at least. */
void tally_charge(struct tally *tally, uint64_t cost_ns, uint64_t sure_ns, uint64_t now_ns);

/* Work of which the tally is told later, all at once, by the one thread that submits it. */
struct tally_many {
	uint64_t from_ns, until_ns; /* busy_until as it was, and as it is with that work */
	uint64_t idle_ns, charged_ns, sure_ns; /* what goes to idle, charged and sure */
};
struct tally_many tally_many_begin(const struct tally *tally);
/* Nobody else has submitted anything since, and nothing was corrected. */
bool tally_many_is_alone(const struct tally *tally, const struct tally_many *many);
void tally_many_add(struct tally_many *many, uint64_t cost_ns, uint64_t sure_ns, uint64_t now_ns);
/* now_ns: when the last was submitted. If the tally has changed meanwhile, all of it is taken to be
 * over by then. */
void tally_charge_many(struct tally *tally, const struct tally_many *many, uint64_t now_ns);

/* Where work is paced by wall time, costs say nothing: the process had work on the device from
 * *shown_ns until until_ns, which *shown_ns becomes. device_util is made of that. */
void tally_show(struct tally *tally, uint64_t *shown_ns, uint64_t until_ns);

/* What was submitted takes so much longer, or shorter. */
void tally_correct(struct tally *tally, int64_t more_ns);

/* Whether all that was submitted should be done by now; and that it is not, as costs are too low;
 * or that it is, though it should not be. */
bool tally_is_idle(const struct tally *tally, uint64_t now_ns);
void tally_is_busy_after_all(struct tally *tally, uint64_t now_ns);
void tally_is_idle_after_all(struct tally *tally, uint64_t now_ns);
/* Or that it was not idle a moment ago: then it is busy as long as it may be by what was charged.
 */
void tally_is_busy_while_due(struct tally *tally, uint64_t now_ns);
/* Or that it has yet to come to what was submitted after `sure` was that. What is late stays so:
 * `due` may be the earlier of the two then. */
void tally_is_behind(struct tally *tally, int64_t sure, uint64_t now_ns);

/* For how long there is still something to do, ns. */
uint64_t tally_ahead_ns(const struct tally *tally, uint64_t now_ns);

/* When all that was submitted should be done. */
uint64_t tally_due_ns(const struct tally *tally);

/* How long there was nothing to do until now, in all, ns. */
uint64_t tally_idle_ns(const struct tally *tally, uint64_t now_ns);

/*
 * The device worked busy_ns on what was charged from one figure of `charged` to another: what is to
 * be added to that. Of measurements that overlap, each speaks for its part of what the others have
 * not. busy_ns < 0: what was charged was right.
 */
int64_t tally_compare(struct tally *tally, int64_t from, int64_t to, int64_t busy_ns);
