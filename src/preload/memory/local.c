/*
 * The driver takes local memory at the first launch of a kernel that needs more of it than any
 * kernel before in its context. It takes the kernel's size for each thread that the device can
 * have, and keeps the memory until the context ends. So the memory is reserved when the function is
 * handed out:
 *
 *     reserved = threads of the device * (most local memory of a function handed out - stack size)
 *
 * The charge of a context already includes its stacks. The reconciliation with NVML knows of the
 * reservation (quota_driver_expect); otherwise it would refund the reservation before the launch.
 *
 * A kernel may be launched in another context than the one in which it was handed out, or may be
 * handed out while no context is current. For a function of cuModuleEnumerateFunctions, the driver
 * does not report the local memory before the function is loaded. So the first launch of a handle
 * in a context (lazy_code.h) reserves, too, and is refused if there is no room. A launch into a
 * stream that is being captured does not load the function.
 *
 * Two kinds of functions are charged only when the reconciliation sees their memory. The first are
 * those that only a graph launches, as the launch of a graph does not look at its kernels. The
 * second are those whose handle has lost its place in the table of lazy_code.c.
 *
 * Contexts beyond the table's size share its last entry. That entry has the highest figure of any
 * of them. `lock` guards the table; it is not held while the driver is asked or room is made.
 */
#include "local.h"

#include <errno.h>

#include "capture.h"
#include "compare.h"
#include "context.h"
#include "cuda.h"
#include "green.h"
#include "headroom.h"
#include "launch.h"
#include "lazy_code.h"
#include "lock.h"
#include "pools.h"
#include "quota.h"
#include "state.h"

#define CONTEXTS_MAX 64

static struct lock lock = LOCK_INIT;
static struct {
	CUcontext context; /* NULL: free */
	uint64_t bytes;    /* for each thread, taken or reserved */
} known[CONTEXTS_MAX];     /* under `lock` */

void local_forked(void)
{
	lock_init(&lock);
	for (unsigned i = 0; i < CONTEXTS_MAX; i++)
		known[i].context = NULL;
}

uint64_t local_threads(CUdevice device)
{
	int processors = 0, threads = 0;

	cuda.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
	cuda.cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
				  device);
	return processors > 0 && threads > 0 ? (uint64_t)processors * (uint64_t)threads : 0;
}

/* The place of the context, or a free one. */
static unsigned place_of_locked(CUcontext context)
{
	unsigned place = CONTEXTS_MAX - 1;

	for (unsigned i = CONTEXTS_MAX; i-- > 0;) {
		if (known[i].context == context)
			return i;
		if (!known[i].context)
			place = i;
	}
	return place;
}

/* Raises the context's figure to `bytes`. Returns the figure before, or stack_bytes for a new
 * context. */
static uint64_t raise_to(CUcontext context, uint64_t stack_bytes, uint64_t bytes)
{
	uint64_t had;
	unsigned i;

	lock_acquire(&lock);
	i = place_of_locked(context);
	if (!known[i].context) {
		known[i].context = context;
		known[i].bytes = stack_bytes;
	}
	had = known[i].bytes;
	if (bytes > had)
		known[i].bytes = bytes;
	lock_release(&lock);
	return had;
}

/* Undoes raise_to after a refusal, unless another thread has raised the figure further. */
static void lower_from(CUcontext context, uint64_t bytes, uint64_t had)
{
	unsigned i;

	lock_acquire(&lock);
	i = place_of_locked(context);
	if (known[i].context == context && known[i].bytes == bytes)
		known[i].bytes = had;
	lock_release(&lock);
}

void local_end_context(CUcontext context)
{
	lock_acquire(&lock);
	for (unsigned i = 0; i < CONTEXTS_MAX; i++)
		if (known[i].context == context)
			known[i].context = NULL;
	lock_release(&lock);
}

static CUresult reserve(CUdevice device, uint64_t bytes)
{
	uint64_t got;
	int error = quota_driver_reserve(device, bytes, bytes, &got);

	if (error == -EDQUOT) {
		headroom_make(device);
		error = quota_driver_reserve(device, bytes, bytes, &got);
	}
	if (error)
		return headroom_refuse(device, bytes, error);
	quota_driver_expect(device, bytes);
	quota_driver_settle(device, bytes, bytes);
	return CUDA_SUCCESS;
}

/* Reserves local memory for a function of the current context that needs `bytes` for each thread.
 */
static CUresult want(uint64_t bytes)
{
	size_t stack_bytes = 0;
	struct place place;
	bool counted;
	CUresult result = headroom_find(&place, &counted);
	uint64_t had;

	if (result != CUDA_SUCCESS || !counted ||
	    cuda.cuCtxGetLimit(&stack_bytes, CU_LIMIT_STACK_SIZE) != CUDA_SUCCESS)
		return result;
	had = raise_to(place.context, stack_bytes, bytes);
	if (bytes <= had)
		return CUDA_SUCCESS;
	result = reserve(place.device, (bytes - had) * local_threads(place.device));
	if (result != CUDA_SUCCESS)
		lower_from(place.context, bytes, had);
	return result;
}

void local_of_stacks(uint64_t bytes)
{
	CUcontext context = NULL;
	CUdevice device;

	if (quota_attached() && cuda.cuCtxGetCurrent(&context) == CUDA_SUCCESS && context &&
	    cuda.cuCtxGetDevice(&device) == CUDA_SUCCESS)
		raise_to(green_owner(context, device), bytes, bytes);
}

CUresult local_of_functions(const CUfunction *functions, unsigned count)
{
	int bytes, most = 0;

	for (unsigned i = 0; i < count && quota_attached(); i++)
		if (cuda.cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
					    functions[i]) == CUDA_SUCCESS &&
		    bytes > most)
			most = bytes;
	return most > 0 ? want((uint64_t)most) : CUDA_SUCCESS;
}

CUresult local_of_kernels(const CUkernel *kernels, unsigned count)
{
	int bytes, most = 0;
	CUdevice device;

	if (!quota_attached() || cuda.cuCtxGetDevice(&device) != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	for (unsigned i = 0; i < count; i++)
		if (cuda.cuKernelGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
					      kernels[i], device) == CUDA_SUCCESS &&
		    bytes > most)
			most = bytes;
	return most > 0 ? want((uint64_t)most) : CUDA_SUCCESS;
}

/* -- at a launch ------------------------------------------------------------------------------- */

/* If the driver has not loaded the function, this loads it, as the launch would do. */
static CUresult of_launched_function(CUfunction function)
{
	int bytes;

	if (cuda.cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function) ==
		    CUDA_ERROR_FUNCTION_NOT_LOADED &&
	    !capture_any())
		cuda.cuFuncLoad(function);
	return local_of_functions(&function, 1);
}

CUresult local_of_launch(const void *handle, CUstream stream)
{
	CUcontext context = launch_context(stream), current = NULL;
	CUstreamCaptureMode mode;
	enum lazy_code_kind kind;
	bool pushed = false;
	CUresult result;

	if (!context || !lazy_code_is_known(handle, &kind))
		return CUDA_SUCCESS;
	cuda.cuCtxGetCurrent(&current);
	if (context != current)
		pushed = cuda.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
	mode = relaxed_begin(); /* the launch may be captured, and a question may load code */
	if (kind == LAZY_CODE_PER_CONTEXT)
		result = local_of_kernels(&(CUkernel){(CUkernel)(uintptr_t)handle}, 1);
	else
		result = of_launched_function((CUfunction)(uintptr_t)handle);
	relaxed_end(mode);
	if (pushed)
		cuda.cuCtxPopCurrent_v2(&current);
	return result;
}
