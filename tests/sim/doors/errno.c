/* Prints what errno is after calls that we stand in front of. errno.sh compares that with what it
 * is without us. */
#include <errno.h>

#include "driver.h"
#include "ways.h"

enum { MARK = 4711 };

#define SHOW(what, call)                         \
	do {                                     \
		errno = MARK;                    \
		(void)(call);                    \
		printf("%s: %d\n", what, errno); \
	} while (0)

int main(void)
{
	void *handle = driver_opened(), *got;
	CUdeviceptr small = 0, large = 0;
	CUcontext context;
	size_t available, total;

	SHOW("dlsym, the first", dlsym(handle, "cuMemAlloc_v2"));
	SHOW("dlsym", dlsym(handle, "cuMemFree_v2"));
	SHOW("dlsym, of none", dlsym(handle, "cuNoSuchFunction"));
	SHOW("dlsym of the default", dlsym(RTLD_DEFAULT, "cuMemFree_v2"));
	SHOW("dlopen", dlopen(DRIVER, RTLD_LAZY));
	SHOW("cuGetProcAddress", cuGetProcAddress_v2("cuInit", &got, CUDA_OF_TODAY, 0, NULL));
	SHOW("cuMemAlloc, too early", cuMemAlloc_v2(&small, SMALL_BYTES));
	SHOW("cuInit", cuInit(0));
	SHOW("cuInit, again", cuInit(0));
	SHOW("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, 0));
	cuCtxSetCurrent(context);
	SHOW("cuMemAlloc", cuMemAlloc_v2(&small, SMALL_BYTES));
	SHOW("cuMemAlloc, too much", cuMemAlloc_v2(&large, LARGE_BYTES));
	SHOW("cuMemGetInfo", cuMemGetInfo_v2(&available, &total));
	SHOW("cuMemFree", cuMemFree_v2(small));
	SHOW("cuMemFree, of none", cuMemFree_v2(12345));
	SHOW("cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease_v2(0));
	return 0;
}
