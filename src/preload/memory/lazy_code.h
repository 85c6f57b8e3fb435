/*
 * Code that the driver loads at the first launch of a function. After the launch, the next
 * allocation or synchronisation compares the accounts with NVML, which charges the code.
 *
 *     handed out    the code is awaited; a comparison is due, as some calls load code early
 *     launched      the code is awaited no more; a comparison is due
 *
 * A handle is a CUfunction, a CUkernel or a CUgraphExec. A graph's kernels load their code when it
 * is first launched. The marks of a launch are raised after the driver's call, so that a comparison
 * which another thread makes meanwhile does not use them up.
 *
 * A CUkernel that is launched in a second context is not awaited there, unless the context was made
 * after the launch in the first.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

extern uint32_t lazy_code_count; /* not 0: code may be awaited; atomic */

static inline bool lazy_code_any(void)
{
	return __builtin_expect(__atomic_load_n(&lazy_code_count, __ATOMIC_RELAXED) != 0, false);
}

/* Whether the code of the function is awaited. */
bool lazy_code_is_awaited(const void *handle);

/* The driver hands out the handle. Returns whether the handle is a new one. Libraries ask for
 * handles that they have, again and again. */
bool lazy_code_handed_out(const void *handle);
/* The handle is not given to the application after all, or ends. */
void lazy_code_taken_back(const void *handle);

/* The handle is a graph's, and its kernels may have been replaced by others. */
void lazy_code_changed(const void *handle);

/* The driver hands out the handle, and has loaded its code by now. */
void lazy_code_loaded(const void *handle);

/* The driver was asked for a launch of a function whose code is awaited. */
void lazy_code_launched(const void *handle, bool accepted);

/* All handles that are handed out count as new again, as one may be another function's after an
 * unload. load_again: the code of all is awaited again. */
void lazy_code_renew(bool load_again);
