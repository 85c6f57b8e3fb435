/* Checks the user of vgpu cdi, and prints the mounts of a slice as flags. */
#include <stdio.h>
#include <unistd.h>

#include "cdi.h"
#include "env.h"

int cdi_check_user(void)
{
	if (geteuid() == 0 || env_get("VGPU_CONTAINERS"))
		return 0;
	return cli_fail(CLI_FAILED, "slices for containers are root's: run this as root");
}

unsigned cdi_flags(const struct container_places *places, const struct container_slice *slice,
		   char ret_flags[CONTAINER_MOUNTS_MAX][CDI_FLAG_LEN])
{
	struct container_mount mount[CONTAINER_MOUNTS_MAX];
	unsigned count = container_mounts(places, slice, mount);

	for (unsigned i = 0; i < count; i++)
		snprintf(ret_flags[i], CDI_FLAG_LEN, "--volume=%.4095s:%.64s%s", mount[i].host,
			 mount[i].container, mount[i].writable ? "" : ":ro");
	return count;
}
