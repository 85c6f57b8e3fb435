#include "headroom.h"

#include <errno.h>

#include "clock.h"
#include "cuda.h"
#include "deferred.h"
#include "green.h"
#include "log.h"
#include "pools.h"
#include "quota.h"
#include "reconcile.h"
#include "state.h"

CUresult headroom_on(CUdevice device, bool *ret_counted)
{
	CUresult result = state_attach(ret_counted);

	if (result != CUDA_SUCCESS || !*ret_counted)
		return result;
	*ret_counted = quota_has_device(device);
	if (*ret_counted)
		reconcile_books(device);
	return CUDA_SUCCESS;
}

CUresult headroom_find(struct place *ret_place, bool *ret_counted)
{
	struct place place;
	CUresult result = state_attach(ret_counted);

	if (result != CUDA_SUCCESS || !*ret_counted)
		return result;
	*ret_counted = cuda.cuCtxGetCurrent(&place.context) == CUDA_SUCCESS && place.context &&
		       cuda.cuCtxGetDevice(&place.device) == CUDA_SUCCESS &&
		       quota_has_device(place.device);
	if (!*ret_counted)
		return CUDA_SUCCESS;
	place.context = green_owner(place.context, place.device);
	reconcile_books(place.device);
	*ret_place = place;
	return CUDA_SUCCESS;
}

static void make_room(CUdevice device)
{
	uint64_t before = quota_used(device);

	deferred_poll();
	pools_give_back(device);
	reconcile_at_rest(device);
	if (quota_used(device) >= before)
		quota_wait_dying(device);
	quota_wait_guesses(device);
}

void headroom_make(CUdevice device)
{
	uint64_t before, now, from_ns;

	if (!trace_wants(TRACE_MEMORY)) {
		make_room(device);
		return;
	}
	before = quota_used(device);
	from_ns = clock_now_ns();
	make_room(device);
	now = quota_used(device);
	quota_trace_room(device, before > now ? before - now : 0, clock_now_ns() - from_ns);
}

CUresult headroom_reserve_holding(enum holding_kind kind, const struct place *place,
				  uint64_t size_bytes, struct holding_reservation *ret_reservation)
{
	uint64_t context = (uintptr_t)place->context;
	int error =
		quota_holding_reserve(kind, place->device, context, size_bytes, ret_reservation);

	if (error == -EDQUOT) {
		headroom_make(place->device);
		error = quota_holding_reserve(kind, place->device, context, size_bytes,
					      ret_reservation);
	}
	return error ? headroom_refuse(place->device, size_bytes, error) : CUDA_SUCCESS;
}

static enum trace_reason reason_of(int error)
{
	switch (error) {
	case -EDQUOT:
		return TRACE_REASON_QUOTA;
	case -EOVERFLOW:
		return TRACE_REASON_ACCOUNTS;
	case -ETIMEDOUT:
		return TRACE_REASON_LOCK;
	default:
		return TRACE_REASON_LOST;
	}
}

void headroom_trace_refusal(CUdevice device, uint64_t size_bytes, int error)
{
	if (trace_wants(TRACE_MEMORY))
		quota_trace_refused(device, size_bytes, reason_of(error));
}

void headroom_trace_driver(CUdevice device, uint64_t size_bytes)
{
	quota_trace_refused(device, size_bytes, TRACE_REASON_DEVICE);
}

CUresult headroom_blocked(const char *what, int error)
{
	if (error == -ESTALE || error == -EUCLEAN) {
		state_lose();
		return CUDA_ERROR_NOT_PERMITTED;
	}
	if (error != -ETIMEDOUT)
		return CUDA_SUCCESS;
	log_line(LOG_ERROR,
		 "%s is refused because another process of the slice holds the region's lock and "
		 "is stopped; continue or kill it",
		 what);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

void headroom_log(enum log_level level, const char *what, CUdevice device, uint64_t size_bytes)
{
	log_line(level, "%s %llu bytes on GPU %d: the slice holds %llu of %llu", what,
		 (unsigned long long)size_bytes, device, (unsigned long long)quota_used(device),
		 (unsigned long long)quota_limit(device));
}

CUresult headroom_refuse(CUdevice device, uint64_t size_bytes, int error)
{
	CUresult blocked = headroom_blocked("an allocation", error);

	headroom_trace_refusal(device, size_bytes, error);
	if (blocked != CUDA_SUCCESS)
		return blocked;
	quota_note_refusal(device);
	if (log_wants(LOG_DEBUG))
		headroom_log(LOG_DEBUG, "refused", device, size_bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}
