/*
 * Questions whether a stream, or an event, is done, and the ends of streams: the pacer is told of
 * them. Who gets "not ready" waits, as who synchronises does (async_free.c).
 */
#include "cuda.h"
#include "hooks.h"
#include "launch.h"

/* How soon it asks again, and launches, nobody knows: as behind a wait, the next launch looks. */
static CUresult answered(CUresult result, bool of_all)
{
	if (result == CUDA_ERROR_NOT_READY && pace_asks_all()) {
		launch_will_wait(of_all);
		pace_waited();
	}
	return result;
}

static bool is_last(CUstream stream, bool per_thread)
{
	const struct pace_work work = {.stream = stream, .per_thread = per_thread};

	return pace_is_last(&work);
}

CUresult cuStreamQuery(CUstream hStream)
{
	cuda_bind();
	return answered(cuda.cuStreamQuery(hStream), is_last(hStream, false));
}

CUresult cuStreamQuery_ptsz(CUstream hStream)
{
	cuda_bind();
	return answered(cuda.cuStreamQuery_ptsz(hStream), is_last(hStream, true));
}

CUresult cuEventQuery(CUevent hEvent)
{
	cuda_bind();
	return answered(cuda.cuEventQuery(hEvent), false);
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
