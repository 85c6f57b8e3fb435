/*
 * A driver may be newer than the list of functions that the hooks were made by. What its new
 * functions allocate is charged by the comparison with NVML alone, so a slice may exceed its quota
 * by it for some milliseconds. The line is for users who wonder at figures. `vgpu doctor` lists all
 * such functions that the driver exports.
 *
 * One line for a process is enough: a runtime asks for every function that it knows, whether it
 * calls them or not. The caller decides that a limit applies; the state is read only for names that
 * would give a line.
 */
#include "newer.h"

#include "cuda.h"
#include "log.h"
#include "names.h"
#include "objects.h"
#include "state.h"

static bool said; /* atomic */

static bool is_news(const char *name)
{
	return names_is_new_memory(name) && !__atomic_load_n(&said, __ATOMIC_RELAXED);
}

static void say(const char *name)
{
	if (state_get() == STATE_INERT || __atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		return;
	log_line(LOG_INFO,
		 "%s, and maybe others, is of a driver newer than this library: what it allocates "
		 "is counted only as far "
		 "as NVML shows it; update vgpu, and see vgpu doctor",
		 name);
}

void newer_handed_out(const char *name)
{
	if (is_news(name))
		say(name);
}

void newer_looked_up(const char *name)
{
	struct object driver;

	if (is_news(name) && objects_named(CUDA_SONAME, &driver) && object_symbol(&driver, name))
		say(name);
}
