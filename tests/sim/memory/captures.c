/* Streams that are captured: what is allocated there takes nothing, and nothing that the library
 * asks the driver meanwhile ends a capture. */
#include "stream_api.h"

#include <pthread.h>

static CUstream stream, other;
static CUcontext context;

static void start(const char *limit)
{
	stream = stream_start(limit);
	CHECK_OK(cuStreamCreate(&other, NON_BLOCKING));
	CHECK_OK(cuCtxGetCurrent(&context));
	assert_data(0);
}

/* The capture is good to its end. */
static CUgraph end(CUstream captured)
{
	CUgraph graph = NULL;

	CHECK_OK(cuStreamEndCapture(captured, &graph));
	CHECK(graph);
	return graph;
}

static CUresult global_v2(CUstream where)
{
	return cuStreamBeginCapture_v2(where, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static CUresult local_v2(CUstream where)
{
	return cuStreamBeginCapture_v2(where, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static CUresult relaxed_v2_ptsz(CUstream where)
{
	return cuStreamBeginCapture_v2_ptsz(where, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static CUresult (*const beginners[])(CUstream) = {cuStreamBeginCapture, cuStreamBeginCapture_ptsz,
						  global_v2, local_v2, relaxed_v2_ptsz};

/* Far more than there is room for is allocated; launching it is what is refused. */
TEST(takes_nothing)
{
	start("1g");
	for (unsigned i = 0; i < sizeof(beginners) / sizeof(*beginners); i++) {
		CUdeviceptr a, b = 0;
		CUgraphExec exec;
		CUgraph graph;

		CHECK_OK(beginners[i](stream));
		a = take_async(40 * MIB, stream);
		CHECK_OK(cuMemAllocAsync_ptsz(&b, i % 2 ? 50 * GIB : MIB, stream));
		give_async(a, stream);
		CHECK_OK(cuMemFreeAsync_ptsz(b, stream));
		graph = end(stream);
		synchronise(stream);
		assert_data(0);
		CHECK_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
		CHECK_EQUAL(cuGraphLaunch(exec, stream),
			    i % 2 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
		assert_data(i % 2 ? 0 : 64 * MIB);
		CHECK_OK(cuGraphExecDestroy(exec));
		CHECK_OK(cuGraphDestroy(graph));
		CHECK_OK(cuDeviceGraphMemTrim(0));
		assert_data(0);
	}
}

/* The driver's answer, whatever it is. */
TEST(to_a_graph)
{
	CUgraph graph;

	start("1g");
	CHECK_OK(cuGraphCreate(&graph, 0));
	CHECK_EQUAL(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0,
						CU_STREAM_CAPTURE_MODE_GLOBAL),
		    CUDA_ERROR_NOT_SUPPORTED);
	CHECK_EQUAL(cuStreamBeginCaptureToGraph_ptsz(stream, graph, NULL, NULL, 0,
						     CU_STREAM_CAPTURE_MODE_GLOBAL),
		    CUDA_ERROR_NOT_SUPPORTED);
	CHECK_EQUAL(cuStreamBeginCapture(NULL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	CHECK_OK(cuGraphDestroy(graph));
	assert_data(0);
}

/* Pools are filled, emptied, synchronised and refused, with the books looked at each time. */
static void *use_pools(void *arg)
{
	CUdeviceptr held[8];

	CHECK_OK(cuCtxSetCurrent(context));
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < 8; i++)
			held[i] = take_async(100 * MIB, other);
		refused_async(900 * MIB, other);
		for (unsigned i = 0; i < 8; i++)
			give_async(held[i], other);
		synchronise(other);
		if (round == 10)
			sleep_ms(1100); /* a comparison with NVML is due */
	}
	assert_data(0);
	return arg;
}

TEST(others_go_on)
{
	start("2g");
	for (unsigned i = 0; i < sizeof(beginners) / sizeof(*beginners); i++) {
		pthread_t thread;

		CHECK_OK(beginners[i](stream));
		take_async(10 * MIB, stream);
		CHECK(pthread_create(&thread, NULL, use_pools, NULL) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
		use_pools(NULL); /* and the capturing thread itself */
		take_async(10 * MIB, stream);
		CHECK_OK(cuGraphDestroy(end(stream)));
	}
}

/* NULL of the per-thread functions is not the stream that waits for the captured one. */
TEST(per_thread_is_counted)
{
	CUdeviceptr address = UNTOUCHED;
	CUstream blocking;

	start("1g");
	CHECK_OK(cuStreamCreate(&blocking, 0));
	CHECK_OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK_EQUAL(cuMemAllocAsync_ptsz(&address, 600 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(address, UNTOUCHED);
	CHECK_OK(cuMemAllocAsync_ptsz(&address, 300 * MIB, NULL));
	assert_covered();
	CHECK_OK(cuGraphDestroy(end(blocking)));
	CHECK_OK(cuMemFreeAsync_ptsz(address, NULL));
	CHECK_OK(cuStreamSynchronize_ptsz(NULL));
	assert_data(0);
}
