/*
 * Hooks that report to the pacer: queries of streams and events, the ends of streams, and calls
 * that make a stream wait. A thread that is answered CUDA_ERROR_NOT_READY is taken to wait, as is a
 * thread that synchronises (async_free.c).
 */
#include "cuda.h"
#include "hooks.h"
#include "launch.h"
#include "pools.h"

static bool is_told(CUresult result)
{
	return result == CUDA_ERROR_NOT_READY && pace_all_must_enter();
}

/* The thread may ask again, or launch, at any time. So its next launch polls for completions, as
 * after a wait. */
static CUresult answered(CUresult result, CUstream stream, bool per_thread)
{
	if (is_told(result)) {
		launch_will_look_at(stream, per_thread);
		pace_found_busy();
	}
	return result;
}

CUresult cuStreamQuery(CUstream hStream)
{
	cuda_bind();
	return answered(cuda.cuStreamQuery(hStream), hStream, false);
}

CUresult cuStreamQuery_ptsz(CUstream hStream)
{
	cuda_bind();
	return answered(cuda.cuStreamQuery_ptsz(hStream), hStream, true);
}

CUresult cuEventQuery(CUevent hEvent)
{
	CUresult result;

	cuda_bind();
	result = cuda.cuEventQuery(hEvent);
	if (is_told(result)) {
		launch_will_look(false);
		pace_found_busy();
	}
	return result;
}

CUresult cuStreamDestroy(CUstream hStream)
{
	cuda_bind();
	pace_end_streams();
	async_free_end_stream(hStream);
	return cuda.cuStreamDestroy(hStream);
}

CUresult cuStreamDestroy_v2(CUstream hStream)
{
	cuda_bind();
	pace_end_streams();
	async_free_end_stream(hStream);
	return cuda.cuStreamDestroy_v2(hStream);
}

/* -- stalls: the stream waits for something that may not be work of the device ----------------- */

#define STALL(name, stream, per_thread, parameters, arguments) \
	CUresult name parameters                               \
	{                                                      \
		cuda_bind();                                   \
		launch_will_stall(stream, per_thread);         \
		return cuda.name arguments;                    \
	}

STALL(cuStreamWaitEvent, hStream, false, (CUstream hStream, CUevent hEvent, unsigned int Flags),
      (hStream, hEvent, Flags))
STALL(cuStreamWaitEvent_ptsz, hStream, true, (CUstream hStream, CUevent hEvent, unsigned int Flags),
      (hStream, hEvent, Flags))
STALL(cuLaunchHostFunc, hStream, false, (CUstream hStream, CUhostFn fn, void *userData),
      (hStream, fn, userData))
STALL(cuLaunchHostFunc_ptsz, hStream, true, (CUstream hStream, CUhostFn fn, void *userData),
      (hStream, fn, userData))
STALL(cuStreamAddCallback, hStream, false,
      (CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags),
      (hStream, callback, userData, flags))
STALL(cuStreamAddCallback_ptsz, hStream, true,
      (CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags),
      (hStream, callback, userData, flags))

#define VALUE_STALL(name, per_thread, type)                                        \
	STALL(name, stream, per_thread,                                            \
	      (CUstream stream, CUdeviceptr addr, type value, unsigned int flags), \
	      (stream, addr, value, flags))
VALUE_STALL(cuStreamWaitValue32, false, cuuint32_t)
VALUE_STALL(cuStreamWaitValue32_ptsz, true, cuuint32_t)
VALUE_STALL(cuStreamWaitValue32_v2, false, cuuint32_t)
VALUE_STALL(cuStreamWaitValue32_v2_ptsz, true, cuuint32_t)
VALUE_STALL(cuStreamWaitValue64, false, cuuint64_t)
VALUE_STALL(cuStreamWaitValue64_ptsz, true, cuuint64_t)
VALUE_STALL(cuStreamWaitValue64_v2, false, cuuint64_t)
VALUE_STALL(cuStreamWaitValue64_v2_ptsz, true, cuuint64_t)
