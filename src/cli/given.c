#include "given.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guard.h"
#include "region.h"
#include "slice.h"

const struct cli_row given_environment[] = {
	{"VGPU_STATE", "the directory where vgpu run keeps slices; only those are seen then"},
	{"VGPU_HAMI", "the directory of HAMi's device plugin, instead of " SLICE_REGION_HAMI_DIR},
	{NULL, NULL},
};

int given_find(const char *name, struct slices *ret_slices, const struct slices_one **ret_one)
{
	struct fault fault = {""};

	*ret_slices = (struct slices){0, NULL};
	if (slices_list(ret_slices, &fault) || slices_find(ret_slices, name, ret_one, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	return 0;
}

int given_count_living(const char *region_path, unsigned *ret_living, struct fault *fault)
{
	struct region region = REGION_CLOSED;
	int error;

	guard_begin();
	error = region_view(region_path, &region, fault);
	if (!error)
		*ret_living = region_living(&region);
	region_close(&region);
	if (guard_end())
		return fault_set(fault, -EUCLEAN, "its region was truncated just now: try again");
	return error;
}

/* -- with whose rights ------------------------------------------------------------------------- */

int given_act_for(const struct slices_one *one, struct fault *fault)
{
	if (geteuid() != 0 || one->owner == 0 || one->kind != SLICES_RUN)
		return 0;
	if (setegid(one->group) == 0 && seteuid(one->owner) == 0)
		return 0;
	given_act_again();
	return fault_set(fault, -EPERM,
			 "the slice %s is user %u's, and acting for that user is not permitted: be "
			 "that user",
			 one->name, (unsigned)one->owner);
}

void given_act_again(void)
{
	if (getuid() != 0 || geteuid() == 0)
		return;
	if (seteuid(0) < 0 || setegid(getgid()) < 0)
		exit(cli_fail(CLI_FAILED, "this process cannot be root again: %s",
			      strerror(errno)));
}
