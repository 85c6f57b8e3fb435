/*
 * Launches of kernels: each passes the gate (pace.h), and is the driver's own from there. A graph's
 * launch does in graph.c. Copies and fills, which take some of the device too, do not yet.
 *
 * Nothing waits for the sake of a stream that is captured: what it is given runs when the graph is
 * launched, and the graph waits then. The driver is asked whether it is only when there is
 * something to wait for. When it does not say, it will not take the launch either, as on the
 * default stream while a capture forbids its use: then the application hears of it at once.
 *
 * Where nothing is in the way, the straight way is a test of some words and a jump into the driver:
 * arguments stay where they are, which is why the way round is a function of its own each time.
 */
#include "launch.h"

#include <errno.h>

#include "cuda.h"
#include "hooks.h"
#include "pace.h"
#include "quota.h"
#include "state.h"

#define ASIDE __attribute__((noinline, cold))

static bool is_capturing(CUstream stream, bool per_thread)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = per_thread ? cuda.cuStreamIsCapturing_ptsz(stream, &status)
				     : cuda.cuStreamIsCapturing(stream, &status);

	if (result == CUDA_ERROR_NOT_SUPPORTED) /* drivers before CUDA 10 capture nothing */
		return false;
	return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

ASIDE CUresult launch_hold(CUstream stream, bool per_thread)
{
	bool attached;
	CUresult result = state_attach(&attached);
	int error;

	if (result != CUDA_SUCCESS)
		return result;
	if (attached)
		pace_attach(quota_region());
	else if (state_get() == STATE_INERT)
		pace_open();
	error = pace_ask();
	if (error == -EAGAIN)
		error = is_capturing(stream, per_thread) ? 0 : pace_wait();
	if (error == 0)
		return CUDA_SUCCESS;
	state_lose();
	return CUDA_ERROR_NOT_PERMITTED;
}

/* A hook, and its way round. */
#define LAUNCH(name, stream, per_thread, parameters, arguments)               \
	ASIDE static CUresult name##_held parameters                          \
	{                                                                     \
		CUresult result = launch_hold(stream, per_thread);            \
                                                                              \
		return result == CUDA_SUCCESS ? cuda.name arguments : result; \
	}                                                                     \
                                                                              \
	CUresult name parameters                                              \
	{                                                                     \
		CUresult(*go) parameters = name##_held;                       \
                                                                              \
		if (pace_is_open())                                           \
			go = cuda.name;                                       \
		return go arguments;                                          \
	}

/* What those have in common that take a grid's shape. */
#define GRID                                                                               \
	CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, \
		unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,    \
		unsigned int sharedMemBytes, CUstream hStream
#define THE_GRID \
	f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream

LAUNCH(cuLaunchKernel, hStream, false, (GRID, void **kernelParams, void **extra),
       (THE_GRID, kernelParams, extra))
LAUNCH(cuLaunchKernel_ptsz, hStream, true, (GRID, void **kernelParams, void **extra),
       (THE_GRID, kernelParams, extra))
LAUNCH(cuLaunchCooperativeKernel, hStream, false, (GRID, void **kernelParams),
       (THE_GRID, kernelParams))
LAUNCH(cuLaunchCooperativeKernel_ptsz, hStream, true, (GRID, void **kernelParams),
       (THE_GRID, kernelParams))

/* What cannot be looked into is refused by the driver. */
static CUstream stream_of_config(const CUlaunchConfig *config)
{
	return config ? config->hStream : NULL;
}

static CUstream stream_of_first(const CUDA_LAUNCH_PARAMS *list, unsigned count)
{
	return list && count ? list[0].hStream : NULL;
}

LAUNCH(cuLaunchKernelEx, stream_of_config(config), false,
       (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra),
       (config, f, kernelParams, extra))
LAUNCH(cuLaunchKernelEx_ptsz, stream_of_config(config), true,
       (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra),
       (config, f, kernelParams, extra))
LAUNCH(cuLaunchCooperativeKernelMultiDevice, stream_of_first(launchParamsList, numDevices), false,
       (CUDA_LAUNCH_PARAMS * launchParamsList, unsigned int numDevices, unsigned int flags),
       (launchParamsList, numDevices, flags))

/* The oldest, of CUDA 2. */
LAUNCH(cuLaunch, NULL, false, (CUfunction f), (f))
LAUNCH(cuLaunchGrid, NULL, false, (CUfunction f, int grid_width, int grid_height),
       (f, grid_width, grid_height))
LAUNCH(cuLaunchGridAsync, hStream, false,
       (CUfunction f, int grid_width, int grid_height, CUstream hStream),
       (f, grid_width, grid_height, hStream))
