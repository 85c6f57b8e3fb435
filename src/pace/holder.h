/*
 * Inside pace/: which member of a device's group is the holder, while the group is open or the
 * slice has the turn. The device loses time where it switches between processes, and a process
 * knows the end of its own work alone. So the members have the device one after the other.
 *
 *     free      The next member that asks becomes the holder, and claims the device: until it has
 *               launched, no other member takes the device from it.
 *     held      The holder launches. Another member that asks marks the word as wanted, and waits.
 *     wanted    The device is free when the holder's work is over. When the holder has held the
 *               device for GANG_HOLD_NS, it launches no more until then.
 *
 * While the slice takes turns, the GANG_HOLD_NS begin with the turn, and the claim lasts while the
 * holder waits for the turn (holder_claim).
 *
 * A member that meets a holder without work in flight and without a claim becomes the holder. So
 * does one that has waited for GANG_HOLD_SOFT_NS since the holder was last seen, or for
 * GANG_HOLD_MOST_NS in all. A holder that has waited for its own work for GANG_HOLD_SOFT_NS
 * launches once more, because that work may wait for the launch. Then the device is free.
 *
 * Of several members that wait, the one that has waited the longest is admitted first: for
 * GANG_HOLD_GAVE_NS, the others leave the device to it. The same holds among members that begin to
 * wait while the gang is shut.
 *
 * The word is in the region, and any process of the slice may write anything into it. Then members
 * launch alongside each other, or wait for GANG_HOLD_MOST_NS. Times are clock_steady_ns().
 */
#pragma once

#include "gang.h"

/* Whether the member is in a device's group and not its holder. Then it calls holder_ask() before
 * its next launch. */
bool holder_is_other(const struct gang *gang, const struct gang_member *self);

/* Whether the member may launch: 0; or for how long it should wait until it asks again, in ns.
 * in_flight: the member has work in flight. */
uint64_t holder_ask(const struct gang *gang, struct gang_member *self, bool in_flight,
		    uint64_t now_ns);

/* Records whether the member waits to launch. Other members' holder_ask() reads this. holder_ask()
 * also records it.
 */
void holder_note_wait(struct gang_member *self, bool waits, uint64_t now_ns);

/* The member has no work in flight, or gives way: if it is the holder, and another member waits,
 * the device is free. */
void holder_release(const struct gang *gang, struct gang_member *self);

/* While the slice takes turns: the member keeps the device until holder_unclaim, as it has work in
 * flight or waits for the slice's turn. False: another member has become the holder meanwhile. */
bool holder_claim(const struct gang *gang, struct gang_member *self, uint64_t now_ns);
/* The member has no work in flight any more: holder_release is part of it. */
void holder_unclaim(const struct gang *gang, struct gang_member *self, uint64_t now_ns);

/* Sleeps for wait_ns, or until the device is free. */
void holder_sleep(const struct gang *gang, uint64_t wait_ns);
