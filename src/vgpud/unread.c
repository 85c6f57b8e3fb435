/*
 * A look opens each region in the list of slices, except where a tenant has too many. Two
 * things are known of a region that was not read. The first is its inode, of which a key has a
 * part (region_key_fits()). The second is its slice's policy, which only an administrator can
 * write: if the policy names GPUs, the slice uses no others.
 */
#include "unread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "policy.h"
#include "region.h"

/* For each slice of the list, the reason why the overview has not read its region, or NULL if
 * it has. Returns NULL without memory; the caller frees the array. */
static const char **reasons_of(const struct overview *overview)
{
	const char **why = calloc(overview->slices.count + 1, sizeof(*why));

	for (unsigned i = 0; why && i < overview->slices.count; i++)
		why[i] = "its tenant has too many slices, or it is another user's";
	for (unsigned i = 0; why && i < overview->count; i++)
		why[overview->slice[i].one - overview->slices.one] = overview->slice[i].why;
	return why;
}

static bool add(struct unread *unread, const struct slices_one *one, const char *why)
{
	struct unread_region *more;
	struct stat st = {0};
	int error = stat(one->region_path, &st) == 0 ? 0 : errno;

	if (error == ENOENT)
		return true;
	more = realloc(unread->region, (unread->count + 1) * sizeof(*more));
	if (!more)
		return false;
	unread->region = more;
	more[unread->count++] = (struct unread_region){
		.one = one, .why = why, .has_inode = !error, .inode = st.st_ino};
	return true;
}

void unread_list(const struct overview *overview, struct unread *ret_unread)
{
	const char **why = reasons_of(overview);
	struct unread unread = {.failed = !why};

	for (unsigned i = 0; !unread.failed && i < overview->slices.count; i++)
		if (why[i])
			unread.failed = !add(&unread, &overview->slices.one[i], why[i]);
	free((void *)why);
	*ret_unread = unread;
}

void unread_free(struct unread *unread)
{
	free(unread->region);
	*unread = (struct unread){.count = 0};
}

/* Whether the policy of the region's slice lets it use the GPU. A policy that cannot be read
 * does. */
static bool may_use(const struct unread_region *region, const char *uuid, unsigned *ret_pct)
{
	static struct policy policy; /* static as it is large; vgpud has one thread */
	int device;

	*ret_pct = 0;
	if (!region->one->policy_path || policy_read(region->one->policy_path, &policy, NULL))
		return true;
	device = policy_find(&policy, uuid);
	if (device >= 0)
		*ret_pct = policy.device[device].cores_pct % 100;
	return device >= 0;
}

const struct unread_region *unread_next(const struct unread *unread, uint64_t key, const char *uuid,
					unsigned *at, unsigned *ret_pct)
{
	while (*at < unread->count) {
		const struct unread_region *region = &unread->region[(*at)++];

		if ((!region->has_inode || region_key_fits(key, region->inode)) &&
		    may_use(region, uuid, ret_pct))
			return region;
	}
	return NULL;
}
