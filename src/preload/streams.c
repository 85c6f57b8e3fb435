/*
 * Questions whether a stream, or an event, is done, and the ends of streams: the pacer is told of
 * them. Who gets "not ready" waits, as who synchronises does (async_free.c).
 */
#include "cuda.h"
#include "hooks.h"
#include "launch.h"

static bool is_told(CUresult result)
{
	return result == CUDA_ERROR_NOT_READY && pace_asks_all();
}

/* How soon it asks again, and launches, nobody knows: as behind a wait, the next launch looks. */
static CUresult answered(CUresult result, CUstream stream, bool per_thread)
{
	if (is_told(result)) {
		launch_will_wait_for(stream, per_thread);
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
		launch_will_wait(false);
		pace_found_busy();
	}
	return result;
}

CUresult cuStreamDestroy(CUstream hStream)
{
	cuda_bind();
	pace_end_streams();
	return cuda.cuStreamDestroy(hStream);
}

CUresult cuStreamDestroy_v2(CUstream hStream)
{
	cuda_bind();
	pace_end_streams();
	return cuda.cuStreamDestroy_v2(hStream);
}
