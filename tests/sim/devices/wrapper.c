#include "wrapper.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT struct wrapper *devices_wrapper(void);
EXPORT CUresult cuInit(unsigned int Flags);

EXPORT CUresult cuDeviceGetCount(int *count);

static struct wrapper wrapper;

struct wrapper *devices_wrapper(void)
{
	return &wrapper;
}

CUresult cuInit(unsigned int Flags)
{
	__typeof__(cuInit) *next = (__typeof__(cuInit) *)dlsym(RTLD_NEXT, "cuInit");
	const char *value = getenv("CUDA_VISIBLE_DEVICES");

	wrapper.calls++;
	snprintf(wrapper.seen, sizeof(wrapper.seen), "%s", value ? value : "(none)");
	if (wrapper.meanwhile)
		wrapper.meanwhile();
	return next(Flags);
}

CUresult cuDeviceGetCount(int *count)
{
	__typeof__(cuDeviceGetCount) *next =
		(__typeof__(cuDeviceGetCount) *)dlsym(RTLD_NEXT, "cuDeviceGetCount");
	CUresult result = next(count);

	if (result == CUDA_SUCCESS && wrapper.device_count)
		*count = wrapper.device_count;
	return result;
}
