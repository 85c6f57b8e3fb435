#include "gang_table.h"

#include "constants.h"
#include "relaxed.h"

bool gang_table_is_taken(const struct gang *gang, struct vgpu_region_member *member)
{
	uint32_t owner = RELAXED_LOAD(member->owner), nobody = 0;

	if (!owner)
		return false;
	if (gang->lives(gang, owner))
		return true;
	RELAXED_CAS(member->owner, owner, nobody);
	return false;
}

struct vgpu_region_member *gang_table_at(const struct gang *gang, unsigned entry)
{
	struct vgpu_region_member *member = &gang->table->member[entry];
	bool any_slice = gang->kind == GANG_OF_SLICES;

	return RELAXED_LOAD(member->owner) &&
			       (any_slice || RELAXED_LOAD(member->slice) == gang->slice)
		       ? member
		       : NULL;
}

struct vgpu_region_member *gang_table_next(const struct gang *gang, unsigned *entry)
{
	uint32_t used = RELAXED_LOAD(gang->table->group.members);
	struct vgpu_region_member *member = NULL;

	while (!member && *entry < used && *entry < VGPU_GANG_MEMBERS_MAX)
		member = gang_table_at(gang, (*entry)++);
	return member;
}

bool gang_table_is_overdue(const struct gang *gang, const struct vgpu_region_member *member,
			   uint64_t now_ns)
{
	uint64_t expected_ns;

	/* Pairs with gang_is_busy's release: the time is of this work, or of later work. */
	if (gang->kind != GANG_OF_DEVICE ||
	    __atomic_load_n(&member->in_flight, __ATOMIC_ACQUIRE) != VGPU_MEMBER_IN_FLIGHT)
		return false;
	expected_ns = RELAXED_LOAD(member->expected);
	return expected_ns && expected_ns < now_ns;
}

bool gang_table_has_work(const struct gang *gang, struct vgpu_region_member *member,
			 uint64_t now_ns)
{
	uint64_t seen, ago_ns;

	if (!RELAXED_LOAD(member->owner) || !RELAXED_LOAD(member->in_flight) ||
	    gang_table_is_overdue(gang, member, now_ns))
		return false;
	seen = RELAXED_LOAD(member->seen);
	ago_ns = since(now_ns, seen);
	if (seen <= now_ns && ago_ns < GANG_DEAD_NS)
		return true;
	/* A time that is ahead is another thread's, a moment ago, or a dead one's of another boot.
	 */
	return ago_ns < GANG_STALE_NS && gang_table_is_taken(gang, member);
}

uint32_t gang_table_own_device(const struct gang *gang, const struct vgpu_region_member *member)
{
	uint32_t device = RELAXED_LOAD(member->device);

	return RELAXED_LOAD(member->slice) == gang->slice && device < VGPU_DEVICES_MAX
		       ? device
		       : VGPU_DEVICES_MAX;
}

bool gang_table_any_in_flight(const struct gang *gang, const struct vgpu_region_member *but,
			      uint64_t now_ns, uint32_t *ret_progress)
{
	struct vgpu_region_member *member;
	bool any = false;

	*ret_progress = 0;
	for (unsigned i = 0; (member = gang_table_next(gang, &i));) {
		if (member == but)
			continue;
		any |= gang_table_is_in_flight(gang, member, now_ns);
		*ret_progress += RELAXED_LOAD(member->progress);
	}
	return any;
}
