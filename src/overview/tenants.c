/* Users are few, and looked up one after the other. Containers may be many, but their slices stand
 * together, so only the last one is compared. */
#include "tenants.h"

#include <stdlib.h>

static bool is_same(const struct slices_one *slice, const struct slices_one *other)
{
	if (slices_is_of_container(slice))
		return slices_is_same_container(slice, other);
	return slice->kind == other->kind && slice->owner == other->owner;
}

static struct tenant *find(const struct tenants *tenants, const struct slices_one *slice)
{
	for (unsigned i = tenants->count; i-- > 0;) {
		if (is_same(slice, tenants->tenant[i].slice))
			return &tenants->tenant[i];
		if (slices_is_of_container(slice))
			break;
	}
	return NULL;
}

static struct tenant *add(struct tenants *tenants, const struct slices_one *slice)
{
	struct tenant *more =
		realloc(tenants->tenant, (tenants->count + 1) * sizeof(*tenants->tenant));

	if (!more)
		return NULL;
	tenants->tenant = more;
	more += tenants->count++;
	*more = (struct tenant){slice, 0};
	return more;
}

bool tenants_admit(struct tenants *tenants, const struct slices_one *slice, unsigned most)
{
	struct tenant *tenant;

	if (most == 0)
		return true;
	tenant = find(tenants, slice);
	if (!tenant)
		tenant = add(tenants, slice);
	return tenant && ++tenant->slices <= most;
}

void tenants_free(struct tenants *tenants)
{
	free(tenants->tenant);
	*tenants = (struct tenants){0, NULL};
}
