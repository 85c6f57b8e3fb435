/* A library that makes a context when it is loaded. Whether there is room for it does not matter.
 */
#include "cuda_abi.h"

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev);

__attribute__((constructor)) static void construct(void)
{
	CUcontext context;

	cuCtxCreate_v2(&context, 0, 0);
}
