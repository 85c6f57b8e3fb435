/* See imports.h. */
#include "imports.h"

#include "import.h"
#include "quota.h"

CUresult imports_charge(CUdeviceptr address, const struct place *place, size_t size_bytes)
{
	const uint64_t context = (uintptr_t)place->context;
	struct holding_reservation reservation;
	CUresult result;
	int again = quota_import_again(address, context);

	if (again)
		return again > 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	result = headroom_reserve_holding(HOLDING_IMPORT, place, size_bytes, &reservation);
	if (result == CUDA_SUCCESS && quota_import_charge(&reservation, address, context) != 0)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	return result;
}

CUresult imports_map(const struct holding_reference *reference, size_t size_bytes)
{
	const uint64_t memory = quota_holding_number(reference->serial);
	const struct place place = {NULL, reference->device};
	struct holding_reservation reservation;
	CUresult result;

	if (!quota_import_is_due(memory, size_bytes))
		return CUDA_SUCCESS;
	quota_ending_end(); /* a comparison may have to find room */
	result = headroom_reserve_holding(HOLDING_IMPORT, &place, size_bytes, &reservation);
	quota_ending_begin();
	if (result == CUDA_SUCCESS && quota_import_pay(&reservation, memory) != 0)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	return result;
}
