/*
 * Stream capture: what becomes a node, and what spoils a capture, as measured on a real driver.
 */
#include "selftest.h"

#include <pthread.h>
#include <unistd.h>

#define MS selftest_ms

static const char ptx[] = ".version 7.0\n.entry spin_ns(.param .u64 ns) { ret; }\n";

static CUcontext context;
static CUfunction spin;
static CUmemoryPool pool;
static CUstream stream;

static void begin(CUstreamCaptureMode mode)
{
	CHECK_EQ(cuStreamBeginCapture_v2(stream, mode), CUDA_SUCCESS);
}

static void is(CUstreamCaptureStatus expected)
{
	CUstreamCaptureStatus status = 9;

	CHECK_EQ(cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
	CHECK_EQ(status, expected);
}

static CUresult launch(CUstream where)
{
	uint64_t ns = 40 * MS;
	void *first[] = {&ns};

	return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, where, first, NULL);
}

/* Ends a capture that is good, or one that is spoilt. */
static void end(bool good)
{
	CUgraph graph = (CUgraph)&graph;

	if (!good) {
		is(CU_STREAM_CAPTURE_STATUS_INVALIDATED);
		CHECK_EQ(launch(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		CHECK_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		CHECK(!graph);
	} else {
		is(CU_STREAM_CAPTURE_STATUS_ACTIVE);
		CHECK_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
		CHECK_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
	}
	is(CU_STREAM_CAPTURE_STATUS_NONE);
}

static CUresult reserved_get(void)
{
	cuuint64_t bytes;

	return cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
}

static void test_nodes(void)
{
	static const CUgraphNodeType expected[] = {
		CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEMSET,
		CU_GRAPH_NODE_TYPE_KERNEL,    CU_GRAPH_NODE_TYPE_MEMCPY,
		CU_GRAPH_NODE_TYPE_MEM_FREE,
	};
	unsigned char byte = 0;
	CUgraphNode nodes[5], before;
	CUgraphNodeType type;
	CUgraphExec exec;
	CUdeviceptr p;
	CUgraph graph;
	size_t count = 5, one = 1;

	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CHECK_EQ(cuMemAllocAsync(&p, 40 * MIB, stream), CUDA_SUCCESS);
	CHECK_EQ(cuMemsetD8Async(p, 7, 40 * MIB, stream), CUDA_SUCCESS);
	CHECK_EQ(launch(stream), CUDA_SUCCESS);
	CHECK_EQ(cuMemcpyDtoHAsync_v2(&byte, p + 5, 1, stream), CUDA_SUCCESS);
	CHECK_EQ(cuMemFreeAsync(p, stream), CUDA_SUCCESS);
	CHECK_EQ(cuMemFreeAsync(p, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	CHECK_EQ(selftest_process_bytes(0, getpid()), CONTEXT);
	CHECK_EQ(cuStreamQuery(stream), CUDA_SUCCESS);
	CHECK_EQ(byte, 0);
	CHECK_EQ(cuGraphGetNodes(graph, nodes, &count), CUDA_SUCCESS);
	CHECK_EQ(count, 5);
	for (int i = 0; i < 5; i++) {
		CHECK_EQ(cuGraphNodeGetType(nodes[i], &type), CUDA_SUCCESS);
		CHECK_EQ(type, expected[i]);
		CHECK_EQ(cuGraphNodeGetDependencies(nodes[i], &before, &one), CUDA_SUCCESS);
		CHECK(i ? one == 1 && before == nodes[i - 1] : one == 0);
		one = 1;
	}
	CHECK_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
	uint64_t since = selftest_now_ns();
	CHECK_EQ(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
	CHECK_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
	CHECK(selftest_now_ns() - since >= 40 * MS);
	CHECK_EQ(byte, 7);
	CHECK_EQ(selftest_process_bytes(0, getpid()), CONTEXT + 64 * MIB); /* not the pool's */
	CHECK_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
	CHECK_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
	CHECK_EQ(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
	CHECK_EQ(selftest_process_bytes(0, getpid()), CONTEXT);
}

static void test_unsafe(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr p;

	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CHECK_EQ(reserved_get(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	end(false);
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	CHECK_EQ(cuMemAlloc_v2(&p, 1), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	end(false);
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CHECK_EQ(reserved_get(), CUDA_SUCCESS);
	end(true);
	CHECK_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
	CHECK_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CHECK_EQ(reserved_get(), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&p, 1), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
	end(true);
	CHECK_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
	CHECK_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
	mode = 3;
	CHECK_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_VALUE);
}

/* In another thread: what it asks, and in which mode it is. */
struct asker {
	CUstreamCaptureMode mode;
	CUresult result, ended;
};

static void *ask(void *argument)
{
	struct asker *asker = argument;
	CUstreamCaptureMode mode = asker->mode;
	CUgraph graph;

	CHECK_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
	CHECK_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
	asker->result = reserved_get();
	asker->ended = cuStreamEndCapture(stream, &graph);
	return NULL;
}

static void other_thread(CUstreamCaptureMode capture, CUstreamCaptureMode mode, bool spoils)
{
	struct asker asker = {.mode = mode};
	pthread_t thread;

	begin(capture);
	CHECK(!pthread_create(&thread, NULL, ask, &asker));
	CHECK(!pthread_join(thread, NULL));
	CHECK_EQ(asker.result, spoils ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
	CHECK_EQ(asker.ended, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	end(!spoils);
}

static void test_threads(void)
{
	other_thread(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL, true);
	other_thread(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false);
	other_thread(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, false);
	other_thread(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL, false);
}

static void test_harmless(void)
{
	CUmemoryPool current;
	CUcontext found = NULL;
	CUdevice device;

	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CHECK_EQ(cuStreamGetCtx(stream, &found), CUDA_SUCCESS);
	CHECK(found == context);
	CHECK_EQ(cuDeviceGetMemPool(&current, 0), CUDA_SUCCESS);
	CHECK_EQ(cuCtxGetCurrent(&found), CUDA_SUCCESS);
	CHECK_EQ(cuCtxGetDevice(&device), CUDA_SUCCESS);
	end(true);
}

static void test_refused(void)
{
	CUstreamCaptureStatus status;
	CUstream blocking;
	CUdeviceptr p, q;
	CUevent event;
	CUgraph graph;

	CHECK_EQ(cuMemAlloc_v2(&p, 1), CUDA_SUCCESS);
	CHECK_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
	CHECK_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
	CHECK_EQ(cuStreamBeginCapture_v2(NULL, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	CHECK_EQ(cuStreamBeginCapture_v2(stream, 3), CUDA_ERROR_INVALID_VALUE);
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CHECK_EQ(cuStreamBeginCapture_v2(stream, 0), CUDA_ERROR_ILLEGAL_STATE);
	CHECK_EQ(cuMemFreeAsync(p, stream), CUDA_ERROR_INVALID_VALUE); /* not the graph's */
	CHECK_EQ(cuEventRecord(event, stream), CUDA_SUCCESS);
	CHECK_EQ(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
	CHECK_EQ(launch(NULL), CUDA_SUCCESS); /* it does not wait for this one */
	CHECK_EQ(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	end(false);
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	end(false);
	CHECK_EQ(cuStreamCreate(&blocking, 0), CUDA_SUCCESS);
	CHECK_EQ(cuStreamBeginCapture_v2(blocking, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemAllocAsync(&q, 100, blocking), CUDA_SUCCESS);
	CHECK_EQ(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	CHECK_EQ(cuStreamIsCapturing(blocking, &status), CUDA_SUCCESS);
	CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	CHECK_EQ(cuMemsetD8_v2(p, 1, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	CHECK_EQ(cuStreamIsCapturing(blocking, &status), CUDA_SUCCESS);
	CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	CHECK_EQ(cuStreamDestroy_v2(blocking), CUDA_SUCCESS); /* ends it, too */
	CHECK_EQ(cuMemsetD8_v2(p, 1, 1), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
}

static void test_all(void)
{
	CUmodule module;

	context = selftest_context();
	CHECK_EQ(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
	CHECK_EQ(cuModuleLoadData(&module, ptx), CUDA_SUCCESS);
	CHECK_EQ(cuModuleGetFunction(&spin, module, "spin_ns"), CUDA_SUCCESS);
	CHECK_EQ(cuStreamCreate(&stream, 1), CUDA_SUCCESS);
	test_nodes();
	test_unsafe();
	test_threads();
	test_harmless();
	test_refused();
}

int main(void)
{
	selftest_begin(NULL);
	return selftest_unhurried(test_all);
}
