/*
 * The captures of streams are counted, for two reasons. A fence spoils every capture in its
 * context, whatever the mode and the thread of the capture (seen with driver 580). So no fence is
 * recorded while a capture goes on anywhere in the process, and no capture begins while a fence is
 * being recorded. And while no capture goes on, no launch has to ask whether its stream is
 * captured.
 *
 * If a stream is destroyed in the middle of its capture, the capture stays in the count. From then
 * on no fence is recorded in this process, and single streams are measured instead.
 */
#include "capture.h"

#include "cuda.h"
#include "hooks.h"
#include "lock.h"
#include "pace.h"

static struct lock lock = LOCK_INIT; /* held while an event is recorded */
static unsigned going_on;            /* atomic; raised under `lock` */

void capture_forked(void)
{
	lock_init(&lock);
	going_on = 0;
}

bool capture_any(void)
{
	return __atomic_load_n(&going_on, __ATOMIC_RELAXED) != 0;
}

static CUresult ask(CUstream stream, bool per_thread, bool *ret_captured)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = per_thread ? cuda.cuStreamIsCapturing_ptsz(stream, &status)
				     : cuda.cuStreamIsCapturing(stream, &status);

	*ret_captured = status != CU_STREAM_CAPTURE_STATUS_NONE;
	return result;
}

bool capture_has(CUstream stream, bool per_thread)
{
	bool captured;

	return capture_any() && (ask(stream, per_thread, &captured) != CUDA_SUCCESS || captured);
}

bool capture_fence(CUcontext context, CUevent event)
{
	bool done;

	lock_acquire(&lock);
	done = !capture_any() && cuda.cuCtxRecordEvent(context, event) == CUDA_SUCCESS;
	lock_release(&lock);
	return done;
}

static void begin(void)
{
	cuda_bind();
	lock_acquire(&lock);
	__atomic_fetch_add(&going_on, 1, __ATOMIC_RELAXED);
	lock_release(&lock);
	pace_end_streams();
}

static CUresult begun(CUresult result)
{
	if (result != CUDA_SUCCESS)
		__atomic_fetch_sub(&going_on, 1, __ATOMIC_RELAXED);
	return result;
}

#define CAPTURE(name, parameters, arguments)       \
	CUresult name parameters                   \
	{                                          \
		begin();                           \
		return begun(cuda.name arguments); \
	}
#define TO_GRAPH                                                               \
	CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,     \
		const CUgraphEdgeData *dependencyData, size_t numDependencies, \
		CUstreamCaptureMode mode

CAPTURE(cuStreamBeginCapture, (CUstream hStream), (hStream))
CAPTURE(cuStreamBeginCapture_ptsz, (CUstream hStream), (hStream))
CAPTURE(cuStreamBeginCapture_v2, (CUstream hStream, CUstreamCaptureMode mode), (hStream, mode))
CAPTURE(cuStreamBeginCapture_v2_ptsz, (CUstream hStream, CUstreamCaptureMode mode), (hStream, mode))
CAPTURE(cuStreamBeginCaptureToGraph, (TO_GRAPH),
	(hStream, hGraph, dependencies, dependencyData, numDependencies, mode))
CAPTURE(cuStreamBeginCaptureToGraph_ptsz, (TO_GRAPH),
	(hStream, hGraph, dependencies, dependencyData, numDependencies, mode))

/* Some errors of the driver's call end the capture, and some do not. So the stream is asked before
 * and after the call. */
static CUresult end(CUresult (*original)(CUstream, CUgraph *), CUstream stream, bool per_thread,
		    CUgraph *ret_graph)
{
	unsigned before;
	CUresult result;
	bool was, is;

	ask(stream, per_thread, &was);
	result = original(stream, ret_graph);
	ask(stream, per_thread, &is);
	before = __atomic_load_n(&going_on, __ATOMIC_RELAXED);
	while (was && !is && before > 0 &&
	       !__atomic_compare_exchange_n(&going_on, &before, before - 1, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED))
		;
	return result;
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	cuda_bind();
	return end(cuda.cuStreamEndCapture, hStream, false, phGraph);
}

CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
	cuda_bind();
	return end(cuda.cuStreamEndCapture_ptsz, hStream, true, phGraph);
}
