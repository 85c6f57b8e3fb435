/*
 * Inside pace/: the turns of a gang's member on its device (src/turn/). While other slices use any
 * device of the gang, the gang launches only in turns that it has on all of these devices at the
 * same time. docs/design/gang_turns.md says how the gang finds that time, and when it takes no
 * turns.
 */
#pragma once

#include "gang.h"
#include "meter.h"
#include "turn.h"

/* The device's turn; NULL: the member takes none. */
struct turn *gang_turn_of(const struct meter *meter, const struct gang *gang, int device);

/* Whether a launch has to ask, because another slice is present, or was. */
static inline bool gang_turn_is_due(const struct turn *turn)
{
	return turn && !turn_is_alone(turn);
}

/* Whether the device's turn has begun since the gang opened, and it is too early to look whether
 * the turn is over. */
bool gang_turn_goes_on(const struct turn *turn, const struct gang *gang,
		       const struct gang_member *self, uint64_t now_ns);

/* Whether the member has had its turn since the gang opened, or needed none: no other member waited
 * for a turn when it asked. Always true in a device's group. */
bool gang_turn_has_begun(const struct gang *gang, const struct gang_member *self);

/* For a launch of an open gang to a device where no other slice is present. False: another member
 * waits for its turn, so the launch waits as well. */
bool gang_turn_begin_alone(const struct gang *gang, struct gang_member *self, uint64_t now_ns);

/* Before gang_ask, for a member with a launch. It fills in when the device could be the slice's,
 * that the member needs its turn, and whether its turn is over. Returns for how long the launch has
 * to wait for the turns if the gang is open; 0: the gang has them. now_ns: clock_steady_ns(), here
 * as below. */
uint64_t gang_turn_ask(struct turn *turn, const struct meter *meter, const struct gang *gang,
		       struct gang_member *self, struct gang_sight *sight, uint64_t now_ns);

/* For another member of the process. While the gang is not open, it fills in when the device could
 * be the slice's, and whether a launch of another thread waits for that. */
void gang_turn_date(struct turn *turn, const struct meter *meter, const struct gang *gang,
		    struct gang_member *self, struct gang_sight *sight, uint64_t now_ns);

/* After gang_ask or gang_note_ready. It does nothing before the cut. waits: a thread waits to
 * launch for the member.
 */
void gang_turn_wish(struct turn *turn, const struct gang *gang, const struct gang_member *self,
		    bool waits, uint64_t now_ns);

/* The member has work in flight for about ahead_ns; or has had none since ended_ns. waited: its
 * host has waited for that, and submits nothing now. While the gang is not open, the turn goes on
 * until the cut (gang_turn_wish), and the slice counts as idle if the host has waited. */
void gang_turn_is_busy(struct turn *turn, uint64_t ahead_ns, uint64_t now_ns);
void gang_turn_is_idle(struct turn *turn, const struct gang *gang, uint64_t ended_ns, bool waited,
		       uint64_t now_ns);

/* The member leaves its gang. Its process takes turns by itself from now on, and wants none until
 * it asks. */
void gang_turn_leave(const struct meter *meter, const struct gang *gang, int device,
		     uint64_t now_ns);
