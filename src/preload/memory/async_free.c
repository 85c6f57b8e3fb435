/*
 * Frees in stream order, and the synchronisations after which the device has the memory back. The
 * hooks call the pacer before each synchronisation (launch.h).
 *
 * A pool gives back memory above its release threshold when a stream, event or context is
 * synchronised, and at no other time (seen with driver 580). So after a free of a pool's memory,
 * the next synchronisations read the pools' figures. The synchronisation of the free's own stream
 * does so too, however many others come before. Synchronisations also reconcile with NVML: a
 * program that becomes idle has synchronised before.
 *
 * A block of cuMemAlloc may also be freed in stream order. It leaves the accounts at once. Its
 * charge stays, and the block is in `awaited`, until
 *
 *     its stream is synchronised, or the         the charge is refunded
 *     stream's context; or that context or
 *     the block's ends
 *     an event is synchronised, whose stream     the reconciliation finds the memory freed
 *     is not known, or the stream is destroyed   (async_free_found_gone)
 *
 * The pointer of another process's pool is in `awaited`, too. If its exporter ends before the
 * stream has come to the free, the charge is here.
 *
 * The stream may be of another context than the block. Another stream may get the handle of one
 * that was destroyed with work in flight, so the entries of a destroyed stream have no handle.
 *
 * If `awaited` is full, the charge is left to the reconciliation at once (quota_free_orphan). That
 * of a pointer is refunded then.
 */
#include <string.h>

#include "allocation.h"
#include "compare.h"
#include "cuda.h"
#include "deferred.h"
#include "freeing.h"
#include "hooks.h"
#include "launch.h"
#include "lock.h"
#include "oversubscribe.h"
#include "pace.h"
#include "pools.h"
#include "quota.h"
#include "reconcile.h"
#include "sys.h"
#include "trace.h"

static struct lock lock = LOCK_INIT;

/* A free that a stream has yet to come to. */
struct awaited {
	CUstream stream;   /* its name, or DESTROYED */
	CUcontext context; /* the stream's */
	struct quota_release release;
	uint64_t import; /* of a pointer, its number, and `release` says nothing yet; or 0 */
};

static struct awaited awaited[64]; /* under `lock` */
static unsigned count;             /* written under `lock`, read without */

/* Names that named() returns for no stream. */
#define DESTROYED ((CUstream)1)
#define OVER      ((CUstream)3) /* its work is over, as its context has ended */

#define STREAMS 16

/* Streams in which pools' memory was freed since they were synchronised, by hash. A stream that has
 * lost its place to another counts as synchronised, as does a thread's default stream with another
 * thread's. 0: free; atomic. */
static uintptr_t freed_in[STREAMS];

void async_free_forked(void)
{
	lock_init(&lock);
	count = 0;
	memset(freed_in, 0, sizeof(freed_in));
}

/* What has ended: the work of a stream, the work of a context, or a context. */
struct ended {
	CUcontext context; /* NULL: the stream's handle says enough */
	CUstream stream;   /* its name */
	bool all_streams;
	bool context_ends; /* also of blocks in it that were freed in another context's stream */
};

static bool is_over(unsigned i, const struct ended *ended)
{
	if (ended->context_ends && awaited[i].release.block.context == (uintptr_t)ended->context)
		return true;
	if (awaited[i].stream == OVER)
		return !ended->context_ends;
	if (ended->context && awaited[i].context != ended->context)
		return false;
	return ended->all_streams || awaited[i].stream == ended->stream;
}

static bool take_awaited(const struct ended *ended, struct awaited *ret_free)
{
	bool found = false;

	if (!__atomic_load_n(&count, __ATOMIC_RELAXED))
		return false;
	lock_acquire(&lock);
	for (unsigned i = 0; i < count && !found; i++) {
		if (!is_over(i, ended))
			continue;
		found = true;
		*ret_free = awaited[i];
		awaited[i] = awaited[count - 1];
		__atomic_store_n(&count, count - 1, __ATOMIC_RELAXED);
	}
	lock_release(&lock);
	return found;
}

static bool add_awaited(const struct awaited *free)
{
	bool room;

	lock_acquire(&lock);
	room = count < sizeof(awaited) / sizeof(awaited[0]);
	if (room) {
		awaited[count] = *free;
		__atomic_store_n(&count, count + 1, __ATOMIC_RELAXED);
	}
	lock_release(&lock);
	return room;
}

static void await(CUstream stream, CUcontext context, const struct quota_release *release)
{
	const struct awaited free = {.stream = stream, .context = context, .release = *release};

	quota_free_postpone();
	if (!add_awaited(&free))
		quota_free_orphan(release);
}

static bool await_pointer(CUstream stream, CUcontext context, const struct quota_pointer *pointer)
{
	const struct awaited free = {
		.stream = stream, .context = context, .import = pointer->import};

	return add_awaited(&free);
}

static void commit(const struct awaited *free)
{
	if (free->import) {
		quota_pointer_free_late(free->import);
		return;
	}
	quota_free_resume();
	quota_free_commit(&free->release);
}

/* Refunds what the driver has back. */
static void settle(const struct ended *ended)
{
	struct awaited free;

	while (take_awaited(ended, &free))
		commit(&free);
}

/* A pool gives memory back at a synchronisation, and not at the end of a context. So pointers stay
 * until the next synchronisation of any stream. */
static void keep_pointers(CUcontext context)
{
	lock_acquire(&lock);
	for (unsigned i = 0; i < count; i++)
		if (awaited[i].import && awaited[i].context == context) {
			awaited[i].context = NULL;
			awaited[i].stream = OVER;
		}
	lock_release(&lock);
}

void async_free_end_context(CUcontext context)
{
	if (__atomic_load_n(&count, __ATOMIC_RELAXED))
		keep_pointers(context);
	settle(&(struct ended){.context = context, .all_streams = true, .context_ends = true});
}

void async_free_end_stream(CUstream stream)
{
	if (!__atomic_load_n(&count, __ATOMIC_RELAXED) || (uintptr_t)stream <= 2)
		return;
	lock_acquire(&lock);
	for (unsigned i = 0; i < count; i++)
		if (awaited[i].stream == stream)
			awaited[i].stream = DESTROYED;
	lock_release(&lock);
}

/* Whether the entry is a pointer, or a block, whose charge on the device is here and at most that
 * high. */
static bool fits(struct awaited *free, CUdevice device, bool pointer, uint64_t bytes)
{
	struct quota_release *release = &free->release;

	if (pointer != (free->import != 0) ||
	    (pointer &&
	     !quota_import_has_moved(free->import, &release->block.device, &release->bytes)))
		return false;
	return release->block.device == device && release->bytes && release->bytes <= bytes;
}

static bool take_that_fits(CUdevice device, bool pointer, uint64_t bytes, struct awaited *ret_free)
{
	bool found = false;

	lock_acquire(&lock);
	for (unsigned i = 0; i < count && !found; i++) {
		if (!fits(&awaited[i], device, pointer, bytes))
			continue;
		found = true;
		*ret_free = awaited[i];
		awaited[i] = awaited[count - 1];
		__atomic_store_n(&count, count - 1, __ATOMIC_RELAXED);
	}
	lock_release(&lock);
	return found;
}

static bool found_gone(CUdevice device, bool pointers, uint64_t *bytes)
{
	struct awaited free;
	bool found = false;

	while (__atomic_load_n(&count, __ATOMIC_RELAXED) && *bytes &&
	       take_that_fits(device, pointers, *bytes, &free)) {
		*bytes -= free.release.bytes;
		commit(&free);
		found = true;
	}
	return found;
}

/* Pointers come first. Other pointers may still be open, and charged here, while their memory is in
 * another process's figure. Such a charge does not show that a block was freed. */
bool async_free_found_gone(CUdevice device, uint64_t bytes)
{
	uint64_t moved;
	bool found;

	if (!__atomic_load_n(&count, __ATOMIC_RELAXED) || !bytes)
		return false;
	found = found_gone(device, true, &bytes);
	moved = quota_moved_here(device);
	bytes -= moved < bytes ? moved : bytes;
	return found_gone(device, false, &bytes) || found;
}

/* -- frees ------------------------------------------------------------------------------------- */

/* One name for each stream of a context, in whatever form a function gets the stream. The name of a
 * default stream of a thread is made of the thread's number, and is not an address. */
static CUstream named(CUstream stream)
{
	if ((uintptr_t)stream > 2)
		return stream;
	if ((uintptr_t)stream == 2)
		return (CUstream)(uintptr_t)((unsigned)sys_gettid() << 8 | 2);
	return NULL;
}

static uintptr_t freed_key(CUstream stream)
{
	return (uintptr_t)stream << 1 | 1;
}

static uintptr_t *freed_place(uintptr_t key)
{
	return &freed_in[(key >> 5 ^ key >> 9 ^ key >> 13) % STREAMS];
}

void async_free_note(CUstream stream)
{
	uintptr_t key = freed_key(stream);

	__atomic_store_n(freed_place(key), key, __ATOMIC_RELAXED);
	pools_note_free();
}

/* The stream was synchronised, and memory that was freed in it may be gone. */
static void note_synchronised(CUstream stream)
{
	uintptr_t key = freed_key(stream), *place = freed_place(key);

	if (__atomic_load_n(place, __ATOMIC_RELAXED) != key)
		return;
	__atomic_store_n(place, 0, __ATOMIC_RELAXED);
	pools_note_free();
}

/* A block of managed memory may be one that cuMemAllocAsync has returned in place of a pool's
 * memory. The driver refuses to free managed memory in stream order (seen with driver 580). */
static CUresult free_block(const struct freeing *freeing, CUdeviceptr address, CUresult result,
			   CUstream stream)
{
	const struct quota_release *release = &freeing->release;

	if (result == CUDA_ERROR_NOT_SUPPORTED && release->block.managed &&
	    oversubscribe_allowed() && deferred_free(address, stream, release))
		return CUDA_SUCCESS;
	if (result != CUDA_SUCCESS)
		freeing_undo(freeing);
	else if (freeing_has_ended(freeing))
		quota_free_commit(release);
	else
		await(named(stream), launch_context(stream), release);
	return result;
}

/* Memory of a pool, or of another process, was freed. */
static CUresult free_pointer(const struct quota_pointer *pointer, CUresult result, CUstream stream)
{
	if (result == CUDA_SUCCESS)
		async_free_note(stream);
	if (result == CUDA_SUCCESS && pointer->import &&
	    await_pointer(named(stream), launch_context(stream), pointer))
		quota_pointer_free_postpone(pointer);
	else
		quota_pointer_free_end(pointer, result == CUDA_SUCCESS);
	return result;
}

static CUresult finish_free(const struct freeing *freeing, CUdeviceptr address, CUresult result,
			    CUstream stream)
{
	return freeing->is_block ? free_block(freeing, address, result, stream)
				 : free_pointer(&freeing->pointer, result, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	struct freeing freeing;

	trace_call(__func__);
	cuda_bind();
	if (!quota_attached())
		return cuda.cuMemFreeAsync(dptr, hStream);
	deferred_poll();
	freeing_begin(dptr, &freeing);
	return finish_free(&freeing, dptr, cuda.cuMemFreeAsync(dptr, hStream), hStream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
	struct freeing freeing;

	trace_call(__func__);
	cuda_bind();
	if (!quota_attached())
		return cuda.cuMemFreeAsync_ptsz(dptr, hStream);
	deferred_poll();
	freeing_begin(dptr, &freeing);
	return finish_free(&freeing, dptr, cuda.cuMemFreeAsync_ptsz(dptr, hStream),
			   per_thread_stream(hStream));
}

/* -- synchronisation --------------------------------------------------------------------------- */

static void look_at_books(void)
{
	CUdevice device = quota_only_device();

	deferred_poll();
	pools_synchronised();
	if (device >= 0 || cuda.cuCtxGetDevice(&device) == CUDA_SUCCESS)
		if (quota_has_device(device))
			reconcile_at_wait(device);
}

static void look(void)
{
	pace_waited();
	look_at_books();
}

/* Each context has default streams of its own, so the name of such a stream needs the context. */
static CUresult stream_synchronised(CUresult result, CUstream stream)
{
	struct ended ended = {.stream = named(stream)};

	if (result != CUDA_SUCCESS || !quota_attached())
		return result;
	if (__atomic_load_n(&count, __ATOMIC_RELAXED)) {
		if ((uintptr_t)stream <= 2)
			cuda.cuCtxGetCurrent(&ended.context);
		settle(&ended);
	}
	note_synchronised(stream);
	look();
	return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream hStream)
{
	trace_call(__func__);
	cuda_bind();
	launch_will_wait_for(hStream, false);
	return stream_synchronised(cuda.cuStreamSynchronize(hStream), hStream);
}

CUresult cuStreamSynchronize_ptsz(CUstream hStream)
{
	trace_call(__func__);
	cuda_bind();
	launch_will_wait_for(hStream, true);
	return stream_synchronised(cuda.cuStreamSynchronize_ptsz(hStream),
				   per_thread_stream(hStream));
}

/* The stream of the event is not known. So freed blocks are found by the reconciliation with NVML.
 */
static void event_synchronised(void)
{
	CUdevice device;

	if (__atomic_load_n(&count, __ATOMIC_RELAXED) &&
	    cuda.cuCtxGetDevice(&device) == CUDA_SUCCESS && quota_has_device(device))
		reconcile_now(device);
	look_at_books();
}

/* Programs that time their launches synchronise many events in a row, most of which are reached.
 * For such an event a query suffices: by CUDA's documentation, a query that succeeds is as good as
 * a synchronisation. */
CUresult cuEventSynchronize(CUevent hEvent)
{
	CUresult result;
	bool is_over;

	trace_call(__func__);
	cuda_bind();
	is_over = launch_has_waited() && cuda.cuEventQuery(hEvent) == CUDA_SUCCESS;
	if (!is_over)
		launch_will_wait(false);
	result = is_over ? CUDA_SUCCESS : cuda.cuEventSynchronize(hEvent);
	if (result != CUDA_SUCCESS || !quota_attached())
		return result;
	if (is_over)
		pace_found_over();
	else
		pace_waited();
	event_synchronised();
	return CUDA_SUCCESS;
}

static CUresult context_synchronised(CUresult result, CUcontext context)
{
	if (result == CUDA_SUCCESS && quota_attached()) {
		if (context)
			settle(&(struct ended){.context = context, .all_streams = true});
		look();
	}
	return result;
}

CUresult cuCtxSynchronize(void)
{
	CUcontext context = NULL;

	trace_call(__func__);
	cuda_bind();
	if (quota_attached())
		cuda.cuCtxGetCurrent(&context);
	launch_will_wait(true);
	return context_synchronised(cuda.cuCtxSynchronize(), context);
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
	trace_call(__func__);
	cuda_bind();
	launch_will_wait(true);
	return context_synchronised(cuda.cuCtxSynchronize_v2(ctx), ctx);
}
