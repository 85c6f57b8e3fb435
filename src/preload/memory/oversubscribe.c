/*
 * The quotas of all slices together may be more than the card has. If the driver then has no room
 * on the card for an allocation that the quota allows, the allocation is made as managed memory.
 * The driver keeps pages on the card that are in use, and the rest in the host's memory. The device
 * is set as the preferred location: pages move there when there is room, and leave it last.
 *
 * What always holds. The quota limits device memory and managed memory together. Such memory is
 * charged by chunks, as any managed memory is (quota/account.c).
 *
 * For the application, such memory has no IPC handle, and is as slow as the link to the host while
 * it is not on the card. The driver's refusal stands for
 *
 *   - the functions of CUDA 3.1, as managed memory does not lie below 4 GiB;
 *   - contexts, modules, and GPUs without managed memory;
 *   - explicit pools and cuMemCreate, whose properties promise memory of the device, which can be
 *     exported.
 *
 * For stream-ordered memory of the device's default pool, async_alloc.c allocates managed memory,
 * and deferred.c frees it.
 */
#include "oversubscribe.h"

#include "allocation.h"
#include "cuda.h"
#include "log.h"
#include "state.h"

bool oversubscribe_allowed(void)
{
	return state_get() == STATE_ENFORCING && state_slice()->oversubscribe;
}

bool oversubscribe_claim(struct quota_reservation *reservation, uint64_t size_bytes)
{
	int device = reservation->device;

	quota_cancel(reservation);
	return quota_reserve(device, true, size_bytes, reservation) == 0;
}

CUresult oversubscribe_take(CUdevice device, uint64_t size_bytes, CUdeviceptr *ret_address)
{
	CUdeviceptr address;

	if (cuda.cuMemAllocManaged(&address, size_bytes, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS)
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* An error is ignored: without the advice the memory is slower, and correct. */
	cuda.cuMemAdvise(address, size_bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device);
	*ret_address = address;
	return CUDA_SUCCESS;
}

void oversubscribe_cannot(CUresult result, bool *said, const char *what)
{
	if (result != CUDA_ERROR_OUT_OF_MEMORY || !oversubscribe_allowed() ||
	    __atomic_exchange_n(said, true, __ATOMIC_RELAXED))
		return;
	log_line(LOG_WARN,
		 "%s is refused because the card has no room: its memory cannot lie in the host's, "
		 "though the slice oversubscribes; cuMemAlloc and cuMemAllocAsync can",
		 what);
}

uint64_t oversubscribe_shown(uint64_t slice_bytes, uint64_t card_bytes)
{
	return slice_bytes < card_bytes || oversubscribe_allowed() ? slice_bytes : card_bytes;
}
