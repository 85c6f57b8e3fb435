/*
 * Inside pace/: the members of gangs. The entries of one table are those of all gangs that have
 * their words in the same file (gang.h): a gang sees its own.
 */
#pragma once

#include "gang.h"

static inline uint64_t since(uint64_t now_ns, uint64_t then_ns)
{
	return now_ns > then_ns ? now_ns - then_ns : 0;
}

/* The gang's member in that entry, dead or alive; NULL: the entry is free, or another gang's. */
struct vgpu_region_member *gang_table_at(const struct gang *gang, unsigned entry);

/* The gang's next member, in entry *entry or later; NULL: there is none. *entry is the one after it
 * then. */
struct vgpu_region_member *gang_table_next(const struct gang *gang, unsigned *entry);

/* Whether the entry has a living owner; a dead one's is freed. May take a system call. */
bool gang_table_is_taken(const struct gang *gang, struct vgpu_region_member *member);

/* Of a device's group: whether the member's work in flight should have ended by now, and the
 * process has not looked. Its host may be busy with something else. */
bool gang_table_is_overdue(const struct gang *gang, const struct vgpu_region_member *member,
			   uint64_t now_ns);

/* Whether the member has work in flight. A member that has not looked for GANG_STALE_NS, or that is
 * dead, has none. now_ns: clock_steady_ns(). */
bool gang_table_has_work(const struct gang *gang, struct vgpu_region_member *member,
			 uint64_t now_ns);

/* The same of work that the gang pays for. */
static inline bool gang_table_is_in_flight(const struct gang *gang,
					   struct vgpu_region_member *member, uint64_t now_ns)
{
	return __atomic_load_n(&member->in_flight, __ATOMIC_RELAXED) == VGPU_MEMBER_IN_FLIGHT &&
	       gang_table_has_work(gang, member, now_ns);
}

/* The member's device, one of gang->devices; VGPU_DEVICES_MAX: the member is another slice's. */
uint32_t gang_table_own_device(const struct gang *gang, const struct vgpu_region_member *member);

/* Whether any member other than `but` (NULL: any at all) has work in flight that the gang pays for.
 * *ret_progress: the sum of the `progress` of all members other than `but`. */
bool gang_table_any_in_flight(const struct gang *gang, const struct vgpu_region_member *but,
			      uint64_t now_ns, uint32_t *ret_progress);
