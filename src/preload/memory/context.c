/*
 * Contexts. Making a context takes hundreds of MiB of the device; ending it frees all memory in it.
 *
 * A context is made in three steps: begin() reserves its cost, or refuses; the driver makes the
 * context; finish() commits the reservation. The primary context is made by the first retain, and
 * ended by the last release or by a reset. The driver is asked whether it was the first or the
 * last.
 *
 * One thread at a time makes or ends contexts. It holds `context_making_lock`, also during the
 * driver's call, which takes a tenth of a second when a context is made. No other call waits for
 * the lock.
 *
 *   - Nested calls. During the driver's call, the thread may get here again, through a wrapper
 *     between this library and the driver, or through a callback of CUPTI. It has the lock then.
 *     The inner call has a reservation of its own. If the inner call made the context that the
 *     outer call returns, the context is counted already.
 *   - NVML. The thread with the lock does not start NVML, which would wait for the loader's lock. A
 *     thread in the constructor of a library may have the loader's lock and wait for
 *     context_making_lock. So if NVML is needed and not started, the thread releases
 *     context_making_lock, starts NVML, and begins again.
 */
#include <errno.h>
#include <stdint.h>

#include "bindings.h"
#include "clock.h"
#include "context.h"
#include "context_making.h"
#include "cuda.h"
#include "deferred.h"
#include "headroom.h"
#include "hooks.h"
#include "lazy_code.h"
#include "local.h"
#include "lock.h"
#include "log.h"
#include "nvml.h"
#include "pace.h"
#include "pools.h"
#include "quota.h"
#include "reconcile.h"
#include "size.h"
#include "state.h"
#include "sys.h"
#include "trace.h"
#include "variables.h"

#define PATIENCE_MS       1000 /* to wait for others that make contexts whose cost is a guess */
#define PATIENCE_KNOWN_MS 200  /* the same, if the cost has become known since */
#define NAP_MS            10

struct pending_context {
	bool counted; /* there is a reservation, and context_making_lock is held */
	CUdevice device;
	unsigned settled_before; /* `settled` at the begin */
	bool lacks_nvml;         /* nothing is reserved: start NVML, then call reserve() again */
	bool has_started_nvml;   /* or has tried to start it */
	struct quota_context_reservation reservation;
};

static struct lock context_making_lock = LOCK_INIT;
static int context_making_thread;     /* the one with context_making_lock, or 0; atomic */
static unsigned context_making_depth; /* how often it has the lock; under context_making_lock */
static unsigned settled;              /* contexts counted so far; under context_making_lock */
static CUcontext primary[VGPU_DEVICES_MAX]; /* the handle, once retained; written under
					       context_making_lock */

void context_making_forked(void)
{
	lock_init(&context_making_lock);
	context_making_thread = 0;
	context_making_depth = 0;
}

/* Takes context_making_lock, unless this thread has it. Only this thread stores its own number in
 * context_making_thread, so the comparison needs no lock. */
static void take_turn(void)
{
	int thread = sys_gettid();

	if (__atomic_load_n(&context_making_thread, __ATOMIC_RELAXED) != thread) {
		lock_acquire(&context_making_lock);
		__atomic_store_n(&context_making_thread, thread, __ATOMIC_RELAXED);
		nvml_forbid_start(thread);
	}
	context_making_depth++;
}

static void end_turn(void)
{
	if (--context_making_depth > 0)
		return;
	nvml_forbid_start(0);
	__atomic_store_n(&context_making_thread, 0, __ATOMIC_RELAXED);
	lock_release(&context_making_lock);
}

CUcontext context_making_primary(CUdevice device)
{
	return __atomic_load_n(&primary[device], __ATOMIC_RELAXED);
}

/*
 * The least that a context can take: local memory for the default stack of 1 KiB, for every thread
 * that the GPU can have. On an H200 that is half of the cost. The driver does not report the rest.
 */
static uint64_t least_bytes(CUdevice device)
{
	return local_threads(device) * 1024;
}

static CUresult refuse(CUdevice device, int error)
{
	CUresult blocked = headroom_blocked("a context", error);
	char used[32], limit[32];

	headroom_trace_refusal(device, least_bytes(device), error);
	if (blocked != CUDA_SUCCESS)
		return blocked;
	quota_note_refusal(device);
	log_line(LOG_WARN,
		 "a context on GPU %d is refused: it does not fit, the slice holds %s of %s",
		 device, size_format(quota_used(device), used, sizeof(used)),
		 size_format(quota_limit(device), limit, sizeof(limit)));
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* While the cost of a context is not known, each process that makes a context is charged more than
 * the context takes, until its cost is measured. So processes that start at the same time wait for
 * each other. False: this process has waited for long enough. */
static bool wait_for_others(unsigned naps, bool known)
{
	if (naps >= (known ? PATIENCE_KNOWN_MS : PATIENCE_MS) / NAP_MS ||
	    region_living(quota_region()) <= 1)
		return false;
	sys_sleep_ns(NAP_MS * NS_PER_MS);
	return true;
}

/* Whether NVML is needed and has to be started: to make room, for the exact cost of the new
 * context, or for that of the one before. In a nested call the lock cannot be released, so NVML is
 * not asked. */
static bool lacks_nvml(const struct pending_context *pending, int error)
{
	if (nvml_is_started() || pending->has_started_nvml || context_making_depth > 1)
		return false;
	return error == -EDQUOT || (!error && !pending->reservation.known &&
				    (pending->reservation.bytes < CONTEXT_BYTES_MOST ||
				     quota_has_context(pending->device)));
}

/* Starts NVML if reserve() has found it lacking. The lock is not held. False: it was not lacking.
 */
static bool start_nvml(struct pending_context *pending)
{
	if (!pending->lacks_nvml)
		return false;
	nvml_start();
	pending->lacks_nvml = false;
	pending->has_started_nvml = true;
	return true;
}

/* Under context_making_lock: reserves the cost of a context. If the result is not CUDA_SUCCESS, the
 * caller calls start_nvml without the lock, and if that returns true, begins again. */
static CUresult reserve(struct pending_context *pending)
{
	CUdevice device = pending->device;
	char uuid[VGPU_UUID_LEN];
	bool known;
	int error;

	if (!quota_has_device(device)) {
		if (!state_device_uuid(device, uuid))
			return CUDA_ERROR_INVALID_DEVICE; /* no device has that number */
		log_line(LOG_ERROR,
			 "GPU %d is not in this slice; choose another with CUDA_VISIBLE_DEVICES",
			 device);
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	}
	pending->settled_before = settled;
	reconcile_books(device); /* at most one context may have a cost that is a guess */
	known = quota_context_cost_known(device);
	error = quota_context_reserve(device, least_bytes(device), &pending->reservation);
	pending->lacks_nvml = lacks_nvml(pending, error);
	if (pending->lacks_nvml) {
		if (!error)
			quota_context_cancel(&pending->reservation);
		return CUDA_ERROR_NOT_READY;
	}
	if (error == -EDQUOT) {
		headroom_make(device);
		error = quota_context_reserve(device, least_bytes(device), &pending->reservation);
	}
	for (unsigned naps = 0; error == -EDQUOT && wait_for_others(naps, known); naps++)
		error = quota_context_reserve(device, least_bytes(device), &pending->reservation);
	return error ? refuse(device, error) : CUDA_SUCCESS;
}

/* Before a cuCtxCreate. CUDA_SUCCESS: call the driver, then finish. */
static CUresult begin(struct pending_context *pending, CUdevice device)
{
	CUresult result;

	*pending = (struct pending_context){.device = device};
	result = state_attach(&pending->counted);
	if (result != CUDA_SUCCESS || !pending->counted)
		return result;
	do {
		take_turn();
		result = reserve(pending);
		if (result != CUDA_SUCCESS)
			end_turn();
	} while (result != CUDA_SUCCESS && start_nvml(pending));
	return result;
}

/* The memory in use on the device, by all processes. The new context takes at most the increase. */
static uint64_t device_used(CUcontext context)
{
	size_t available = 0, total = 0;
	bool known;

	if (cuda.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
		return UINT64_MAX;
	known = cuda.cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS;
	cuda.cuCtxPopCurrent_v2(&context);
	return known && total > available ? total - available : UINT64_MAX;
}

/* NVML's figure for the process, or 0. NVML is asked only if the context may not fit, as that takes
 * time. */
static uint64_t measure(const struct pending_context *pending, uint64_t at_most)
{
	char uuid[VGPU_UUID_LEN];
	uint64_t bytes;

	if (!quota_context_is_tight(&pending->reservation, at_most) ||
	    !state_device_uuid(pending->device, uuid) || nvml_own_usage(uuid, &bytes) != 0)
		return 0;
	return bytes;
}

/* CUDA_SUCCESS: the context is counted. CUDA_ERROR_OUT_OF_MEMORY: it exceeds the quota, and the
 * caller ends it. */
static CUresult settle(struct pending_context *pending, CUcontext context)
{
	unsigned naps = 0;
	int error;

	if (settled != pending->settled_before &&
	    quota_knows_context((uint64_t)(uintptr_t)context)) { /* a nested call made it */
		quota_context_cancel(&pending->reservation);
		return CUDA_SUCCESS;
	}
	do {
		uint64_t at_most = pending->reservation.known ? UINT64_MAX : device_used(context);

		error = quota_context_settle(&pending->reservation, (uint64_t)(uintptr_t)context,
					     at_most, measure(pending, at_most));
	} while (error == -EDQUOT && wait_for_others(naps++, pending->reservation.known));
	if (!error) {
		/* The new context loads code for itself. */
		lazy_code_context_made(context);
		settled++;
		log_line(LOG_TRACE, "made a context on GPU %d", pending->device);
	}
	return error ? refuse(pending->device, error) : CUDA_SUCCESS;
}

/* The driver has answered to a cuCtxCreate. */
static CUresult finish(struct pending_context *pending, CUresult result, CUcontext context,
		       CUcontext *pctx)
{
	if (pending->counted) {
		if (result != CUDA_SUCCESS) {
			quota_context_cancel(&pending->reservation);
		} else {
			result = settle(pending, context);
			if (result != CUDA_SUCCESS) {
				cuda.cuCtxDestroy_v2(context);
				quota_context_cancel(&pending->reservation);
			}
		}
		end_turn();
	}
	if (result == CUDA_SUCCESS)
		*pctx = context;
	return result;
}

/* Defines the hook of a call that makes a context on the device and stores its handle in *out. */
#define MAKER(name, out, device, parameters, arguments)                  \
	CUresult name parameters                                         \
	{                                                                \
		struct pending_context pending;                          \
		CUcontext context = NULL;                                \
		CUresult result = TRACE_CALLED(begin(&pending, device)); \
                                                                         \
		if (result != CUDA_SUCCESS)                              \
			return result;                                   \
		result = cuda.name arguments;                            \
		return finish(&pending, result, context, out);           \
	}
/* The place for the driver to store the handle in. With NULL, the driver refuses the call. */
#define MADE(out) ((out) ? &context : NULL)

MAKER(cuCtxCreate, pctx, dev, (CUcontext * pctx, unsigned int flags, CUdevice dev),
      (MADE(pctx), flags, dev))

MAKER(cuCtxCreate_v2, pctx, dev, (CUcontext * pctx, unsigned int flags, CUdevice dev),
      (MADE(pctx), flags, dev))

MAKER(cuCtxCreate_v3, pctx, dev,
      (CUcontext * pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
       CUdevice dev),
      (MADE(pctx), paramsArray, numParams, flags, dev))

MAKER(cuCtxCreate_v4, pctx, dev,
      (CUcontext * pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev),
      (MADE(pctx), ctxCreateParams, flags, dev))

/* Contexts that work with OpenGL and VDPAU. */
MAKER(cuGLCtxCreate, pCtx, device, (CUcontext * pCtx, unsigned int Flags, CUdevice device),
      (MADE(pCtx), Flags, device))

MAKER(cuGLCtxCreate_v2, pCtx, device, (CUcontext * pCtx, unsigned int Flags, CUdevice device),
      (MADE(pCtx), Flags, device))

MAKER(cuVDPAUCtxCreate, pCtx, device,
      (CUcontext * pCtx, unsigned int flags, CUdevice device, unsigned int vdpDevice,
       void *vdpGetProcAddress),
      (MADE(pCtx), flags, device, vdpDevice, vdpGetProcAddress))

MAKER(cuVDPAUCtxCreate_v2, pCtx, device,
      (CUcontext * pCtx, unsigned int flags, CUdevice device, unsigned int vdpDevice,
       void *vdpGetProcAddress),
      (MADE(pCtx), flags, device, vdpDevice, vdpGetProcAddress))

/* -- ending contexts --------------------------------------------------------------------------- */

/* Before a call that may end a context. Returns whether a quota applies; then end_unlock is called
 * after the driver's call. perhaps: the only context that the call may end. context: the same if it
 * probably ends, or NULL. The pacer drops its events in that one, as other threads must not query
 * events that end with their context. Until end_unlock, no comparison with NVML lowers the
 * accounts.
 */
static bool end_lock(CUcontext context, CUcontext perhaps)
{
	bool locked;

	cuda_bind();
	locked = quota_attached();
	if (locked) {
		take_turn();
		quota_ending_begin();
		quota_context_ending((uintptr_t)perhaps);
	}
	pace_end_streams();
	if (locked && context)
		pace_end_context(context);
	return locked;
}

static void end_unlock(bool locked)
{
	if (locked) {
		quota_context_ending(0);
		quota_ending_end();
		end_turn();
	}
}

/* Removes the context from the accounts if it has ended. */
static CUresult ended(bool locked, CUresult result, bool gone, CUcontext context)
{
	if (locked && result == CUDA_SUCCESS && gone) {
		pace_end_streams(); /* also the streams of launches made during the driver's call */
		pace_end_context(context);
		async_free_end_context(context);
		deferred_end_context(context);
		bindings_end_context(context);
		local_end_context(context);
		lazy_code_context_ended(context);
		quota_context_end((uint64_t)(uintptr_t)context);
		variables_refund_ended();
	}
	end_unlock(locked);
	return result;
}

/*
 * Defines the hook of a call that may end a context. Only here do the accounts record the end
 * before the driver is called. ending, perhaps: end_lock's. after: an expression of `locked` and
 * `result` that ends the context in the accounts, and returns the result.
 */
#define ENDER(name, ending, perhaps, after, parameters, arguments) \
	CUresult name parameters                                   \
	{                                                          \
		bool locked = end_lock(ending, perhaps);           \
		CUresult result;                                   \
                                                                   \
		trace_call(__func__);                              \
		result = cuda.name arguments;                      \
		return after;                                      \
	}

ENDER(cuCtxDestroy, ctx, ctx, ended(locked, result, true, ctx), (CUcontext ctx), (ctx))
ENDER(cuCtxDestroy_v2, ctx, ctx, ended(locked, result, true, ctx), (CUcontext ctx), (ctx))

/* The last of several detaches ends the context. The driver is asked whether it has ended. */
static CUresult detached(bool locked, CUresult result, CUcontext context)
{
	unsigned int version;
	bool gone = locked && result == CUDA_SUCCESS &&
		    cuda.cuCtxGetApiVersion(context, &version) != CUDA_SUCCESS;

	return ended(locked, result, gone, context);
}

ENDER(cuCtxDetach, ctx, ctx, detached(locked, result, ctx), (CUcontext ctx), (ctx))

/* -- the primary context ----------------------------------------------------------------------- */

static bool primary_is_active(CUdevice device)
{
	unsigned int flags;
	int active = 0;

	return cuda.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active;
}

/* The handle of the device's primary context as it was last retained, or NULL. */
static CUcontext primary_of(CUdevice device)
{
	return device >= 0 && device < VGPU_DEVICES_MAX ? context_making_primary(device) : NULL;
}

/* After a first retain: commits the reservation, or undoes the retain. */
static CUresult finish_primary(struct pending_context *pending, CUresult result, CUcontext context)
{
	if (result != CUDA_SUCCESS) {
		quota_context_cancel(&pending->reservation);
		return result;
	}
	result = settle(pending, context);
	if (result == CUDA_SUCCESS) {
		__atomic_store_n(&primary[pending->device], context, __ATOMIC_RELAXED);
	} else {
		cuda.cuDevicePrimaryCtxRelease_v2(pending->device);
		quota_context_cancel(&pending->reservation);
	}
	return result;
}

static CUresult retain_in_turn(struct pending_context *pending, CUcontext *ret_context)
{
	CUresult result;

	if (primary_is_active(pending->device))
		return cuda.cuDevicePrimaryCtxRetain(ret_context, pending->device);
	result = reserve(pending);
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuDevicePrimaryCtxRetain(ret_context, pending->device);
	return finish_primary(pending, result, *ret_context);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	struct pending_context pending = {.device = dev};
	CUcontext context = NULL;
	bool attached;
	CUresult result = TRACE_CALLED(state_attach(&attached));

	if (result != CUDA_SUCCESS)
		return result;
	if (!attached || !pctx)
		return cuda.cuDevicePrimaryCtxRetain(pctx, dev);
	do {
		take_turn();
		result = retain_in_turn(&pending, &context);
		end_turn();
	} while (result != CUDA_SUCCESS && start_nvml(&pending));
	if (result == CUDA_SUCCESS)
		*pctx = context;
	return result;
}

/* After a release or a reset. */
static CUresult primary_ended(bool locked, CUresult result, CUdevice dev)
{
	CUcontext context = locked ? primary_of(dev) : NULL;
	bool gone = result == CUDA_SUCCESS && context && !primary_is_active(dev);

	if (gone)
		__atomic_store_n(&primary[dev], NULL, __ATOMIC_RELAXED);
	return ended(locked, result, gone, context);
}

/* The context may be retained elsewhere, and not end. */
ENDER(cuDevicePrimaryCtxRelease, NULL, primary_of(dev), primary_ended(locked, result, dev),
      (CUdevice dev), (dev))
ENDER(cuDevicePrimaryCtxRelease_v2, NULL, primary_of(dev), primary_ended(locked, result, dev),
      (CUdevice dev), (dev))

ENDER(cuDevicePrimaryCtxReset, primary_of(dev), primary_of(dev), primary_ended(locked, result, dev),
      (CUdevice dev), (dev))
ENDER(cuDevicePrimaryCtxReset_v2, primary_of(dev), primary_of(dev),
      primary_ended(locked, result, dev), (CUdevice dev), (dev))
