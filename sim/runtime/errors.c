/* The runtime's error names and texts, and its version. */
#include "runtime.h"

static const struct {
	cudaError_t error;
	const char *name, *text; /* text NULL: the driver's */
} errors[] = {
#define RT_ERROR(name, value, text) {name, #name, text},
#include "errors.def"
#undef RT_ERROR
};

static const char unknown[] = "unrecognized error code";

const char *cudaGetErrorName(cudaError_t error)
{
	for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
		if (errors[i].error == error)
			return errors[i].name;
	}
	return unknown;
}

const char *cudaGetErrorString(cudaError_t error)
{
	const char *text = NULL;

	for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
		if (errors[i].error == error && errors[i].text)
			return errors[i].text;
	}
	/* Without a driver, the pointer to its function is NULL. */
	rt_start();
	if (!cu.cuGetErrorString || cu.cuGetErrorString((CUresult)error, &text) || !text)
		return unknown;
	return text;
}

cudaError_t cudaRuntimeGetVersion(int *runtimeVersion)
{
	if (!runtimeVersion)
		return rt_end(cudaErrorInvalidValue);
	*runtimeVersion = RT_VERSION;
	return cudaSuccess;
}
