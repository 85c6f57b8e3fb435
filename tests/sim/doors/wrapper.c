/*
 * Another tool's wrapper of the driver, as preloaded beside ours: it exports cuMemAlloc_v2, counts,
 * and passes on. By what it passes on to:
 *
 *   WRAPPER_NEXT     dlsym(RTLD_NEXT), what follows it in load order
 *   WRAPPER_HANDLE   dlsym of a handle of the driver
 *   WRAPPER_DLSYM    as the first, and it exports dlsym too, which it finds by dlvsym
 */
#include "driver.h"
#include "ways.h"

EXPORT unsigned doors_wrapper_calls(void);
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize);

static unsigned calls;

unsigned doors_wrapper_calls(void)
{
	return calls;
}

#if defined(WRAPPER_DLSYM)

EXPORT void *dlsym(void *handle, const char *name);

static dlsym_function *next_dlsym(void)
{
	return (dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", LIBC_BASE);
}

void *dlsym(void *handle, const char *name)
{
	static __thread int depth;
	void *answer;

	CHECK_SAYING(depth < 10, "dlsym goes in circles");
	if (strcmp(name, "cuMemAlloc_v2") == 0)
		return (void *)cuMemAlloc_v2;
	depth++;
	answer = next_dlsym()(handle, name);
	depth--;
	return answer;
}

static void *below(const char *symbol)
{
	return next_dlsym()(RTLD_NEXT, symbol);
}

#elif defined(WRAPPER_HANDLE)
#define below by_handle
#else
#define below by_next
#endif

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	static __thread int depth;
	__typeof__(cuMemAlloc_v2) *next = (__typeof__(cuMemAlloc_v2) *)below("cuMemAlloc_v2");
	CUresult result;

	if (!next)
		return CUDA_ERROR_UNKNOWN;
	CHECK_SAYING(next != cuMemAlloc_v2, "the wrapper finds itself below itself");
	CHECK_SAYING(depth < 10, "cuMemAlloc_v2 goes in circles");
	calls++;
	depth++;
	result = next(dptr, bytesize);
	depth--;
	return result;
}
