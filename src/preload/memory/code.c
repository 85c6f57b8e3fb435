/*
 * Code is compared with NVML where little room is left, and a load or a first launch is refused
 * where there is none. Elsewhere, nothing is asked: the next allocation or synchronisation
 * compares.
 *
 * A handle whose code is awaited (lazy_code.h) may be loaded already, for example by a graph. So
 * the driver is asked before a function is refused. It has no such question for a kernel of a
 * library.
 *
 * Not refused are launches of graphs, since an executable graph does not name its kernels. A
 * graph's first launch may so exceed the limit by the code of all its kernels, if their nodes did
 * not load it.
 */
#include "code.h"

#include <errno.h>

#include "compare.h"
#include "cuda.h"
#include "headroom.h"
#include "launch.h"
#include "lazy_code.h"
#include "pools.h"
#include "quota.h"
#include "reconcile.h"
#include "size.h"

/* Programs expect out-of-memory errors from allocations, not from launches. */
static void warn_once(CUdevice device)
{
	static bool warned;
	char used[32], limit[32];

	if (__atomic_exchange_n(&warned, true, __ATOMIC_RELAXED))
		return;
	log_line(LOG_WARN,
		 "code is refused on GPU %d, at a load or at a kernel's first launch, because the "
		 "slice holds %s of %s; free memory first",
		 device, size_format(quota_used(device), used, sizeof(used)),
		 size_format(quota_limit(device), limit, sizeof(limit)));
}

/* Clears the slots of dead processes before it makes room in ways that take longer. */
static bool has_room(CUdevice device)
{
	if (!quota_is_above_limit(device))
		return true;
	quota_reap();
	if (!quota_is_above_limit(device))
		return true;
	headroom_make(device);
	return !quota_is_above_limit(device);
}

static bool is_tight(CUdevice device)
{
	return quota_attached() && quota_has_device(device) && quota_is_narrow(device);
}

static CUresult admit(CUdevice device)
{
	CUstreamCaptureMode mode = relaxed_begin(); /* pools are asked what they hold */
	bool room;

	reconcile_books(device);
	room = has_room(device);
	relaxed_end(mode);
	if (room)
		return CUDA_SUCCESS;
	warn_once(device);
	return headroom_refuse(device, 0, -EDQUOT);
}

CUresult code_admit(CUdevice device)
{
	return is_tight(device) ? admit(device) : CUDA_SUCCESS;
}

bool code_is_loaded(CUfunction function)
{
	CUfunctionLoadingState state;

	return cuda.cuFuncIsLoaded(&state, function) == CUDA_SUCCESS &&
	       state == CU_FUNCTION_LOADING_STATE_LOADED;
}

static bool is_loaded(const void *handle, enum lazy_code_kind kind)
{
	return kind == LAZY_CODE_ONCE && code_is_loaded((CUfunction)(uintptr_t)handle);
}

CUresult code_admit_handle(const void *handle, CUstream stream)
{
	enum lazy_code_kind kind;
	CUcontext context;
	CUdevice device;

	if (!lazy_code_is_awaited(handle, stream) || !lazy_code_is_known(handle, &kind))
		return CUDA_SUCCESS;
	context = launch_context(stream);
	device = context ? launch_device(context) : -1;
	return is_tight(device) && !is_loaded(handle, kind) ? admit(device) : CUDA_SUCCESS;
}
