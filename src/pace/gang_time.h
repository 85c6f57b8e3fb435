/*
 * Inside pace/: the work that members of a gang (gang.h) have in flight, and the payment for it
 * (docs/design/gangs.md, "What a gang pays").
 *
 * Work is noted when a process looks, so other processes may count a member as busy for longer than
 * it is. The process that sees the end refunds the difference, unless the member was not seen for
 * GANG_STALE_NS.
 */
#pragma once

#include "gang.h"

/* Adds the time since the last call to used_ns if any member has had work in flight, and charges
 * each device that was in use. now_ns: clock_steady_ns(), here as below. */
void gang_count(const struct gang *gang, uint64_t now_ns);

/* The sum of all charges and corrections of the member's device, ns. */
int64_t gang_paid_ns(const struct gang *gang, const struct gang_member *self);

/* The member has looked, and has work in flight; or has had none since ended_ns. */
void gang_is_busy(const struct gang *gang, struct gang_member *self, uint64_t now_ns);
void gang_is_idle(const struct gang *gang, struct gang_member *self, uint64_t ended_ns,
		  uint64_t now_ns);

/* When work of other members last ended that was in flight together with the member's present work;
 * 0: there was none. */
uint64_t gang_others_ended_ns(const struct gang *gang, const struct gang_member *self);
