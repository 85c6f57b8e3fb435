#include "gang_table.h"

#include "constants.h"
#include "words.h"

bool gang_table_is_taken(const struct gang *gang, struct vgpu_region_member *member)
{
	uint32_t owner = LOAD(member->owner), nobody = 0;

	if (!owner)
		return false;
	if (gang->lives(gang, owner))
		return true;
	SWAP(member->owner, owner, nobody);
	return false;
}

unsigned gang_table_used(const struct gang *gang)
{
	uint32_t count = LOAD(gang->table->group.members);

	return count < VGPU_GANG_MEMBERS_MAX ? count : VGPU_GANG_MEMBERS_MAX;
}

struct vgpu_region_member *gang_table_at(const struct gang *gang, unsigned entry)
{
	struct vgpu_region_member *member = &gang->table->member[entry];
	bool any_slice = gang->kind == GANG_OF_SLICES;

	return LOAD(member->owner) && (any_slice || LOAD(member->slice) == gang->slice) ? member
											: NULL;
}

bool gang_table_is_in_flight(const struct gang *gang, struct vgpu_region_member *member,
			     uint64_t now_ns)
{
	uint64_t ago_ns;

	if (!LOAD(member->owner) || !LOAD(member->in_flight))
		return false;
	ago_ns = since(now_ns, LOAD(member->seen));
	return ago_ns < GANG_STALE_NS &&
	       (ago_ns < GANG_DEAD_NS || gang_table_is_taken(gang, member));
}
