/*
 * Stream captures are counted. An event that is recorded behind all of a context's streams spoils
 * every capture in the context, whatever its mode and thread (seen with driver 580): so there is
 * none while a capture goes on anywhere in the process, and none begins while one is being
 * recorded. And as long as none goes on, no launch has to ask whether its stream is captured.
 *
 * A stream that is destroyed in the middle of its capture leaves it counted: from then on there are
 * no such events in this process, and single streams are measured instead.
 */
#include "capture.h"

#include "cuda.h"
#include "hooks.h"
#include "lock.h"
#include "pace.h"

static struct lock lock = LOCK_INIT; /* held while an event is recorded */
static unsigned going_on;            /* atomic; raised under `lock` */

void capture_forget(void)
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

/* There are errors that end one, and errors that do not. */
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
