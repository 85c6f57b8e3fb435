/* A plugin with functions of its own under names that begin as the driver's do. */
#include "answers.h"

EXPORT void plugin_run(const char *argument);
EXPORT void cuBogusThing(void);
EXPORT void cudnnCreate(void);
EXPORT void nvBogusThing(void);
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize);

void cuBogusThing(void)
{
}

void cudnnCreate(void)
{
}

void nvBogusThing(void)
{
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	(void)dptr;
	(void)bytesize;
	return CUDA_ERROR_NOT_SUPPORTED;
}

void plugin_run(const char *argument)
{
	(void)argument;
	answers_print("plugin", NULL);
}
