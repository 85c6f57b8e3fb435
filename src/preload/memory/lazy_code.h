/*
 * Code that the driver loads at the first launch of a function. After the launch, the next
 * allocation or synchronisation compares the accounts with NVML, which charges the code. So does
 * the next first launch, if little room is left (code.h).
 *
 *     handed out    the code is awaited; a comparison is due, as some calls load code early
 *     launched      the code is awaited no more; a comparison is due
 *
 * A handle is a CUfunction, a CUkernel or a CUgraphExec. A graph's kernels load their code when it
 * is first launched. The marks of a launch are raised after the driver's call, so that a comparison
 * which another thread makes meanwhile does not use them up.
 *
 * A CUfunction belongs to one context, and a graph's kernels have the contexts of its nodes. The
 * code of a CUkernel is awaited in each context, until the kernel was launched in all that there
 * are. Of a process with more than fourteen contexts, the others count as one. The context of a
 * launch is asked for only while the process has several contexts, and the kernel was launched in
 * some of them only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"

extern uint32_t lazy_code_count; /* not 0: code may be awaited; atomic */

static inline bool lazy_code_any(void)
{
	return __builtin_expect(__atomic_load_n(&lazy_code_count, __ATOMIC_RELAXED) != 0, false);
}

/* Whether the code of the handle is awaited in the context of the stream. */
bool lazy_code_is_awaited(const void *handle, CUstream stream);

/* How often the driver loads the code of a handle. */
enum lazy_code_kind { LAZY_CODE_ONCE, LAZY_CODE_PER_CONTEXT };

/* Whether the table has the handle, and of which kind the handle is. If a launch has the handle,
 * LAZY_CODE_PER_CONTEXT means a CUkernel, and LAZY_CODE_ONCE a CUfunction. */
bool lazy_code_is_known(const void *handle, enum lazy_code_kind *ret_kind);

/* The driver hands out the handle. Returns whether the handle is a new one. Libraries ask for
 * handles that they have, again and again. */
bool lazy_code_handed_out(const void *handle, enum lazy_code_kind kind);
/* The handle is not given to the application after all, or ends. */
void lazy_code_taken_back(const void *handle);

/* The handle is a graph's, and its kernels may have been replaced by others. */
void lazy_code_changed(const void *handle);

/* The driver hands out the handle, and has loaded its code in the current context by now. */
void lazy_code_loaded(const void *handle);

/* The driver has made or changed a node of a graph, and may have loaded the code of its kernel. */
void lazy_code_in_node(void);

/* The driver was asked to launch a handle whose code is awaited in the context of the stream. */
void lazy_code_launched(const void *handle, CUstream stream, bool accepted);

/* All handles that are handed out count as new again, as one may be another function's after an
 * unload. */
void lazy_code_renew(void);

/* A context was made, which loads code for itself, or has ended. For the thread that makes and ends
 * contexts (context.c). */
void lazy_code_context_made(CUcontext context);
void lazy_code_context_ended(CUcontext context);
