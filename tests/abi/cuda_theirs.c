/*
 * cuda.def, cuda_values.def and cuda_abi.h against a toolkit's cuda.h. Rows of functions and values
 * that differ do not compile, and the compiler names them.
 */
#define __CUDA_API_VERSION_INTERNAL /* declares all versions, under their exported names */
#include <cuda.h>

#include "layout.h"

/* As cudaGL.h and cudaVDPAU.h have them, which want the headers of OpenGL and VDPAU: VdpDevice is
 * an uint32_t. */
#undef cuGLCtxCreate
#undef cuVDPAUCtxCreate
CUresult cuGLCtxCreate(CUcontext *pCtx, unsigned int Flags, CUdevice device);
CUresult cuGLCtxCreate_v2(CUcontext *pCtx, unsigned int Flags, CUdevice device);
CUresult cuVDPAUCtxCreate(CUcontext *pCtx, unsigned int flags, CUdevice device,
			  unsigned int vdpDevice, void *vdpGetProcAddress);
CUresult cuVDPAUCtxCreate_v2(CUcontext *pCtx, unsigned int flags, CUdevice device,
			     unsigned int vdpDevice, void *vdpGetProcAddress);

#define ROW(name, parameters)                                                                   \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&name), CUresult(*) parameters), \
		       #name " has other parameters in cuda.h");
#define CU_HOOK(name, class, parameters, arguments) ROW(name, parameters)
#define CU_CALL(name, class, parameters)            ROW(name, parameters)
#define CU_SIM(name, class, parameters)             ROW(name, parameters)
#include "cuda.def"

#define CU_RESULT(name, value) _Static_assert(name == value, #name " has another value in cuda.h");
#define CU_VALUE(name, value)  CU_RESULT(name, value)
#include "cuda_values.def"

static const struct layout theirs[] = {
#include "cuda_types.def"
};

int main(void)
{
	return layout_compare(theirs, sizeof(theirs) / sizeof(theirs[0]));
}
