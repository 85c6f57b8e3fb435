/*
 * A driver may be newer than the list of functions from which the hooks are made. Memory that its
 * new functions allocate is charged by the reconciliation with NVML alone, so a slice may exceed
 * its quota by that memory for some milliseconds. The line explains such figures to users. `vgpu
 * doctor` lists all such functions that the driver exports.
 *
 * One line in a process is enough: a runtime looks up every function that it knows, whether it
 * calls them or not. The state is read only for names that would give a line, as reading it the
 * first time opens files.
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
