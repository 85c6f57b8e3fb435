/*
 * The driver's functions about stream capture, over capture.c, and whose context a stream is in.
 */
#include "sim.h"

/* Enters a function about a stream with the result parameter `out`, which must not be NULL. */
static CUresult enter_stream(const char *function, CUstream handle, bool per_thread,
			     const void *out, CUstream *ret_stream)
{
	CUcontext context;
	CUresult result = enter_context(function, &context);

	if (!result)
		result = stream_resolve(context, handle, per_thread, ret_stream);
	if (result)
		return result;
	return out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
	CUstream stream;
	CUresult result = enter_stream(__func__, hStream, false, __func__, &stream);

	return result ? result : capture_begin(stream, mode);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode)
{
	CUstream stream;
	CUresult result = enter_stream(__func__, hStream, true, __func__, &stream);

	return result ? result : capture_begin(stream, mode);
}

/* The version of CUDA 10.0 has no mode parameter. Its mode is global. */
CUresult cuStreamBeginCapture(CUstream hStream)
{
	CUstream stream;
	CUresult result = enter_stream(__func__, hStream, false, __func__, &stream);

	return result ? result : capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCapture_ptsz(CUstream hStream)
{
	CUstream stream;
	CUresult result = enter_stream(__func__, hStream, true, __func__, &stream);

	return result ? result : capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
				     const CUgraphNode *dependencies,
				     const CUgraphEdgeData *dependencyData, size_t numDependencies,
				     CUstreamCaptureMode mode)
{
	CUstream stream;
	CUresult result = enter_stream(__func__, hStream, false, hGraph, &stream);

	(void)dependencies, (void)dependencyData, (void)numDependencies, (void)mode;
	return result ? result : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
					  const CUgraphNode *dependencies,
					  const CUgraphEdgeData *dependencyData,
					  size_t numDependencies, CUstreamCaptureMode mode)
{
	CUstream stream;
	CUresult result = enter_stream(__func__, hStream, true, hGraph, &stream);

	(void)dependencies, (void)dependencyData, (void)numDependencies, (void)mode;
	return result ? result : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	CUstream stream;
	CUresult result = enter_stream(__func__, hStream, false, phGraph, &stream);

	return result ? result : capture_end(stream, phGraph);
}

CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
	CUstream stream;
	CUresult result = enter_stream(__func__, hStream, true, phGraph, &stream);

	return result ? result : capture_end(stream, phGraph);
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
	CUstream stream;
	CUresult result = enter_stream(__func__, hStream, false, captureStatus, &stream);

	return result ? result : capture_status(stream, captureStatus);
}

CUresult cuStreamIsCapturing_ptsz(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
	CUstream stream;
	CUresult result = enter_stream(__func__, hStream, true, captureStatus, &stream);

	return result ? result : capture_status(stream, captureStatus);
}

/* The number of a capture is that of its stream, which has one capture at a time. */
static CUresult capture_info(const char *function, CUstream handle, bool per_thread,
			     CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id)
{
	CUstream stream;
	CUresult result = enter_stream(function, handle, per_thread, ret_status, &stream);

	if (!result)
		result = capture_status(stream, ret_status);
	if (!result && ret_id && *ret_status != CU_STREAM_CAPTURE_STATUS_NONE)
		*ret_id = (uintptr_t)stream;
	return result;
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
				cuuint64_t *id_out)
{
	return capture_info(__func__, hStream, false, captureStatus_out, id_out);
}

CUresult cuStreamGetCaptureInfo_ptsz(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
				     cuuint64_t *id_out)
{
	return capture_info(__func__, hStream, true, captureStatus_out, id_out);
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
	CUstream stream;
	CUresult result = enter_stream(__func__, hStream, false, pctx, &stream);

	if (!result)
		*pctx = stream->context;
	return result;
}

CUresult cuStreamGetCtx_ptsz(CUstream hStream, CUcontext *pctx)
{
	CUstream stream;
	CUresult result = enter_stream(__func__, hStream, true, pctx, &stream);

	if (!result)
		*pctx = stream->context;
	return result;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	return mode ? capture_exchange_mode(mode) : CUDA_ERROR_INVALID_VALUE;
}
