/*
 * Inside pace/: which member of a device's group is the holder, while the group is open or the
 * slice has the turn. docs/design/gangs.md says why the members have the device one after the
 * other, and when one takes it from the holder.
 *
 *     free      The next member that asks becomes the holder, and claims the device: until it has
 *               launched, no other member takes the device from it.
 *     held      The holder launches. Another member that asks marks the word as wanted, and waits.
 *     wanted    The device is free when the holder's work is over. When the holder has held the
 *               device for GANG_HOLD_NS, it launches no more until then. When it has waited so for
 *               GANG_HOLD_SOFT_NS, it launches once more, because that work may wait for the
 *               launch. Then the device is free.
 *
 * While the slice takes turns, the GANG_HOLD_NS begin with the turn, and the claim lasts while the
 * holder waits for the turn (holder_claim). Of the members that wait, also of those that began to
 * wait while the gang was shut, the one that has waited the longest is admitted first: for
 * GANG_HOLD_GAVE_NS, the others leave the free device to it.
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
