/*
 * Two entry points of the driver: cuInit, where a process joins its slice, and cuGetProcAddress,
 * which hands out the driver's functions.
 */
#include "cuda.h"
#include "hooks.h"
#include "newer.h"
#include "state.h"
#include "visible_devices.h"

CUresult cuInit(unsigned int Flags)
{
	bool attached, hiding;
	CUresult result;

	if (state_get() == STATE_REFUSED)
		return CUDA_ERROR_NOT_PERMITTED; /* a line on stderr has said why */
	cuda_bind();
	hiding = visible_devices_begin();
	result = cuda.cuInit(Flags);
	if (hiding)
		visible_devices_end(result == CUDA_SUCCESS);
	if (result != CUDA_SUCCESS)
		return result;
	return state_attach(&attached);
}

/* The driver has chosen a function by name, version and flags. The application gets the hook of
 * that function, if there is one. */
static void put_hook(const char *symbol, CUresult result, void **pfn)
{
	const struct hook *hook;

	if (result != CUDA_SUCCESS || !pfn || state_get() == STATE_INERT)
		return;
	hook = hook_of_pointer(HOOK_OF_CUDA, *pfn);
	if (hook)
		*pfn = hook->ours;
	else if (*pfn && symbol)
		newer_handed_out(symbol);
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	CUresult result;

	cuda_bind();
	result = cuda.cuGetProcAddress(symbol, pfn, cudaVersion, flags);
	put_hook(symbol, result, pfn);
	return result;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *symbolStatus)
{
	CUresult result;

	cuda_bind();
	result = cuda.cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, symbolStatus);
	put_hook(symbol, result, pfn);
	return result;
}
