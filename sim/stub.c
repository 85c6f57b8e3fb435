/*
 * Stubs for functions that the real driver exports and this one does not have: each name of the
 * symbol list without a row in cuda.def. A stub is called with any parameters, which the calling
 * conventions allow a callee to ignore. A row in cuda.def replaces the stub.
 */
#include "sim.h"

#pragma GCC visibility push(default)
#define SIM_STUB(name) CUresult name(void);
#include "stubs.def"
#undef SIM_STUB
#pragma GCC visibility pop

static CUresult stub(const char *function)
{
	CUresult result = enter_early(function);

	return result ? result : CUDA_ERROR_NOT_SUPPORTED;
}

#define SIM_STUB(name)                 \
	CUresult name(void)            \
	{                              \
		return stub(__func__); \
	}
#include "stubs.def"
