/*
 * When the driver has no room on the card for an allocation that the quota allows, because the
 * quotas of all slices together are more than the card, it is made anew as managed memory: the
 * driver keeps on the card what is in use, and the rest in the host's memory. The device is advised
 * as its place, so that it moves there when there is room, and from there last.
 *
 * Always: the quota is the limit as ever, of both kinds together. It is charged as any managed
 * memory is (quota/account.c), by chunks.
 *
 * What is different for the application: such memory has no IPC handle and goes at the host's pace
 * when it is not on the card. The functions of CUDA 3.1 get none, because it does not lie below
 * 4 GiB; nor do contexts, modules, and GPUs without managed memory: then the driver's refusal
 * stands. It stands, too, for explicit pools and for cuMemCreate: their properties promise memory
 * of the device, which can be exported. Stream-ordered memory of the device's default pool has a
 * substitute (async_alloc.c), and deferred.c frees it.
 */
#include "oversubscribe.h"

#include "cuda.h"
#include "log.h"
#include "state.h"

bool oversubscribe_allowed(void)
{
	return state_get() == STATE_ENFORCING && state_slice()->oversubscribe;
}

bool oversubscribe_claim(struct quota_claim *claim, uint64_t size_bytes)
{
	int device = claim->device;

	quota_cancel(claim);
	return quota_reserve(device, true, size_bytes, claim) == 0;
}

CUresult oversubscribe_take(CUdevice device, uint64_t size_bytes, CUdeviceptr *ret_address)
{
	CUdeviceptr address;

	if (cuda.cuMemAllocManaged(&address, size_bytes, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS)
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* It is as good without, only slower. */
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
