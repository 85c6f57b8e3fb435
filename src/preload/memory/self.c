/*
 * Older drivers list the host's pids, also to processes in a pid namespace, which do not know their
 * pids on the host. Another process may have the same number there. So the process takes device
 * memory of an unusual size, and gives it back. The one entry of NVML's list whose figure rose and
 * fell by exactly that size is the process's own. The result must be the same for two sizes.
 * cuMemCreate is used, as it needs no context, and cuMemRelease waits for nothing.
 *
 * The memory is charged while the process has it. If other threads allocate meanwhile, or there is
 * no room, no entry is found, and a later reconciliation tries again, a few times. One thread at a
 * time runs this (reconcile.c).
 */
#include "self.h"

#include <errno.h>

#include "compare.h"
#include "context.h"
#include "cuda.h"
#include "log.h"
#include "nvml.h"
#include "state.h"

#define TRIES 8
#define MIB   ((uint64_t)1 << 20)

static unsigned tries; /* only the thread that reconciles uses it */

void self_forked(void)
{
	tries = 0;
}

struct list {
	struct nvml_figure figure[NVML_FIGURES_MAX];
	unsigned count;
};

static uint64_t figure_of(const struct list *list, unsigned pid)
{
	for (unsigned i = 0; i < list->count; i++)
		if (list->figure[i].pid == pid)
			return list->figure[i].bytes;
	return 0;
}

/* The pid whose figure is higher in `with` than before and after, by exactly `bytes`; 0: there is
 * none, or several. */
static unsigned who_moved(const struct list *before, const struct list *with,
			  const struct list *after, uint64_t bytes)
{
	unsigned found = 0, pid;

	for (unsigned i = 0; i < with->count; i++) {
		pid = with->figure[i].pid;
		if (with->figure[i].bytes != figure_of(before, pid) + bytes ||
		    with->figure[i].bytes != figure_of(after, pid) + bytes)
			continue;
		if (found)
			return 0;
		found = pid;
	}
	return found;
}

static bool look(const char *uuid, struct list *ret_list)
{
	return nvml_figures(uuid, ret_list->figure, &ret_list->count) == 0;
}

/* Takes device memory of that size, and gives it back. Returns the pid found, or 0. */
static unsigned try(CUdevice device, const char *uuid, uint64_t bytes)
{
	static struct list before, with, after; /* only the thread that reconciles uses them */
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
	CUmemGenericAllocationHandle handle;
	bool looked;

	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = device;
	if (!look(uuid, &before) || before.count == 0 ||
	    cuda.cuMemCreate(&handle, bytes, &prop, 0) != CUDA_SUCCESS)
		return 0;
	looked = look(uuid, &with);
	cuda.cuMemRelease(handle);
	return looked && look(uuid, &after) ? who_moved(&before, &with, &after, bytes) : 0;
}

static unsigned try_charged(CUdevice device, const char *uuid, uint64_t bytes)
{
	uint64_t got;
	unsigned pid;

	if (quota_driver_reserve(device, bytes, bytes, &got) != 0)
		return 0;
	pid = try(device, uuid, bytes);
	quota_driver_settle(device, bytes, 0);
	return pid;
}

static void say(CUdevice device, bool listed)
{
	log_line(LOG_WARN,
		 "NVML shows %s on GPU %d, so what the driver takes there of "
		 "itself, as for code at its first use, is not held; run it in the host's pid "
		 "namespace, or with a newer driver",
		 listed ? "another process's memory under this one's pid"
			: "no memory of this process",
		 device);
}

bool self_find(CUdevice device, bool listed)
{
	char uuid[VGPU_UUID_LEN];
	unsigned pid;

	if (tries == TRIES || !quota_has_context(device) || !state_device_uuid(device, uuid))
		return false;
	tries++;
	pid = try_charged(device, uuid, 6 * MIB);
	if (pid && try_charged(device, uuid, 10 * MIB) == pid) {
		nvml_know_self(pid);
		quota_found();
		return true;
	}
	if (tries == TRIES)
		say(device, listed);
	return false;
}
