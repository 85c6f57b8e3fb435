/*
 * Names and descriptions of results.
 */
#include "sim.h"

static const struct text {
	CUresult result;
	const char *name;
} names[] = {
#define CU_RESULT(name, value) {name, #name},
#include "cuda_values.def"
};

/* Descriptions of common results. Other results are described by their names. */
static const struct text descriptions[] = {
	{CUDA_SUCCESS, "no error"},
	{CUDA_ERROR_INVALID_VALUE, "invalid argument"},
	{CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
	{CUDA_ERROR_NOT_INITIALIZED, "initialization error"},
	{CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"},
	{CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
	{CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"},
	{CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
	{CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
	{CUDA_ERROR_NOT_FOUND, "named symbol not found"},
	{CUDA_ERROR_NOT_READY, "device not ready"},
	{CUDA_ERROR_NOT_SUPPORTED, "operation not supported"},
	{CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"},
	{CUDA_ERROR_UNKNOWN, "unknown error"},
};

static const char *text_find(const struct text *texts, size_t count, CUresult result)
{
	for (size_t i = 0; i < count; i++) {
		if (texts[i].result == result)
			return texts[i].name;
	}
	return NULL;
}

static const char *name_of(CUresult error)
{
	return text_find(names, sizeof names / sizeof *names, error);
}

CUresult cuGetErrorName(CUresult error, const char **pStr)
{
	CUresult result = enter_early(__func__);

	if (result)
		return result;
	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = name_of(error);
	return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **pStr)
{
	CUresult result = enter_early(__func__);

	if (result)
		return result;
	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = text_find(descriptions, sizeof descriptions / sizeof *descriptions, error);
	if (!*pStr)
		*pStr = name_of(error);
	return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
