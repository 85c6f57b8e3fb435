/*
 * In a slice that oversubscribes, cuMemAllocAsync returns managed memory when the card is full. The
 * application frees that memory by cuMemFreeAsync, as it frees any other.
 *
 * How it works. An event is recorded in the stream, and the block is put into a list. Later
 * allocations, frees and synchronisations query the events, and free the blocks whose events are
 * reached. No call waits, with one exception: if the list is full, the call waits for its oldest
 * event.
 *
 * What always holds. A block in the list is not in the accounts, and its charge stays until it is
 * freed. The lock protects the list; the driver is called without the lock. A block that is still
 * in the list when its context ends is freed with the context.
 */
#include "deferred.h"

#include "allocation.h"
#include "capture.h"
#include "cuda.h"
#include "hooks.h"
#include "lock.h"

#define MOST                 64
#define EVENT_DISABLE_TIMING 2 /* CU_EVENT_DISABLE_TIMING */

struct deferred {
	CUevent event;
	CUdeviceptr address;
	struct quota_release release;
};

static struct lock lock = LOCK_INIT;
static struct deferred list[MOST]; /* under `lock`, the oldest first */
static unsigned count;             /* written under `lock`, read without */

void deferred_forked(void)
{
	lock_init(&lock);
	count = 0;
}

static void remove_locked(unsigned i)
{
	for (; i + 1 < count; i++)
		list[i] = list[i + 1];
	__atomic_store_n(&count, count - 1, __ATOMIC_RELAXED);
}

static bool add(const struct deferred *deferred)
{
	bool room;

	lock_acquire(&lock);
	room = count < MOST;
	if (room) {
		list[count] = *deferred;
		__atomic_store_n(&count, count + 1, __ATOMIC_RELAXED);
	}
	lock_release(&lock);
	return room;
}

/* Takes the i-th entry out of the list, so that no other thread frees it. False: there are fewer.
 */
static bool take(unsigned i, struct deferred *ret_deferred)
{
	bool found;

	lock_acquire(&lock);
	found = i < count;
	if (found) {
		*ret_deferred = list[i];
		remove_locked(i);
	}
	lock_release(&lock);
	return found;
}

static void refund(const struct deferred *deferred)
{
	quota_free_resume();
	quota_free_commit(&deferred->release);
}

/* Ends an entry after a query of its event: the event is reached, or there was an error. After an
 * error the context is gone, and the memory with it. Its address may be another allocation's, so
 * the driver is not asked to free it. */
static void end(const struct deferred *deferred, CUresult result)
{
	if (result == CUDA_SUCCESS) {
		cuda.cuEventDestroy_v2(deferred->event);
		cuda.cuMemFree_v2(deferred->address);
	}
	refund(deferred);
}

static void wait_and_end(const struct deferred *deferred)
{
	end(deferred, cuda.cuEventSynchronize(deferred->event));
}

void deferred_poll(void)
{
	unsigned left = __atomic_load_n(&count, __ATOMIC_RELAXED);
	struct deferred deferred;

	if (!left || capture_any())
		return;
	/* An entry that is not finished goes to the end of the list, so each entry is looked at
	 * once. */
	for (; left && take(0, &deferred); left--) {
		CUresult result = cuda.cuEventQuery(deferred.event);

		if (result != CUDA_ERROR_NOT_READY)
			end(&deferred, result);
		else if (!add(&deferred))
			wait_and_end(&deferred);
	}
}

/* Records an event after all work that the stream has been given. */
static bool record(CUstream stream, CUevent *ret_event)
{
	CUevent event;

	if (cuda.cuEventCreate(&event, EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
		return false;
	if (cuda.cuEventRecord(event, stream) != CUDA_SUCCESS) {
		cuda.cuEventDestroy_v2(event);
		return false;
	}
	*ret_event = event;
	return true;
}

bool deferred_free(CUdeviceptr address, CUstream stream, const struct quota_release *release)
{
	struct deferred deferred = {.address = address, .release = *release}, oldest;

	if (capture_any() || !record(stream, &deferred.event))
		return false;
	quota_free_postpone();
	while (!add(&deferred))
		if (take(0, &oldest))
			wait_and_end(&oldest);
	return true;
}

void deferred_end_context(CUcontext context)
{
	struct deferred deferred;

	for (unsigned left = __atomic_load_n(&count, __ATOMIC_RELAXED); left && take(0, &deferred);
	     left--) {
		if (deferred.release.block.context == (uintptr_t)context)
			refund(&deferred);
		else if (!add(&deferred))
			wait_and_end(&deferred);
	}
}
