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
	CHECK_OK(cuStreamBeginCapture_v2(stream, mode));
}

static void is(CUstreamCaptureStatus expected)
{
	CUstreamCaptureStatus status = 9;

	CHECK_OK(cuStreamIsCapturing(stream, &status));
	CHECK_EQUAL(status, expected);
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
		CHECK_EQUAL(launch(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		CHECK_EQUAL(cuStreamEndCapture(stream, &graph),
			    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		CHECK(!graph);
	} else {
		is(CU_STREAM_CAPTURE_STATUS_ACTIVE);
		CHECK_OK(cuStreamEndCapture(stream, &graph));
		CHECK_OK(cuGraphDestroy(graph));
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
	CHECK_OK(cuMemAllocAsync(&p, 40 * MIB, stream));
	CHECK_OK(cuMemsetD8Async(p, 7, 40 * MIB, stream));
	CHECK_OK(launch(stream));
	CHECK_OK(cuMemcpyDtoHAsync_v2(&byte, p + 5, 1, stream));
	CHECK_OK(cuMemFreeAsync(p, stream));
	CHECK_EQUAL(cuMemFreeAsync(p, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuStreamEndCapture(stream, &graph));
	CHECK_EQUAL(selftest_process_bytes(0, getpid()), CONTEXT);
	CHECK_OK(cuStreamQuery(stream));
	CHECK_EQUAL(byte, 0);
	CHECK_OK(cuGraphGetNodes(graph, nodes, &count));
	CHECK_EQUAL(count, 5);
	for (int i = 0; i < 5; i++) {
		CHECK_OK(cuGraphNodeGetType(nodes[i], &type));
		CHECK_EQUAL(type, expected[i]);
		CHECK_OK(cuGraphNodeGetDependencies(nodes[i], &before, &one));
		CHECK(i ? one == 1 && before == nodes[i - 1] : one == 0);
		one = 1;
	}
	CHECK_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	uint64_t since = selftest_now_ns();
	CHECK_OK(cuGraphLaunch(exec, stream));
	CHECK_OK(cuStreamSynchronize(stream));
	CHECK(selftest_now_ns() - since >= 40 * MS);
	CHECK_EQUAL(byte, 7);
	CHECK_EQUAL(selftest_process_bytes(0, getpid()), CONTEXT + 64 * MIB); /* not the pool's */
	CHECK_OK(cuGraphExecDestroy(exec));
	CHECK_OK(cuGraphDestroy(graph));
	CHECK_OK(cuDeviceGraphMemTrim(0));
	CHECK_EQUAL(selftest_process_bytes(0, getpid()), CONTEXT);
}

static void test_unsafe(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr p;

	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CHECK_EQUAL(reserved_get(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	end(false);
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	CHECK_EQUAL(cuMemAlloc_v2(&p, 1), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	end(false);
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CHECK_OK(reserved_get());
	end(true);
	CHECK_OK(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK_EQUAL(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CHECK_OK(reserved_get());
	CHECK_OK(cuMemAlloc_v2(&p, 1));
	CHECK_OK(cuMemFree_v2(p));
	end(true);
	CHECK_OK(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK_EQUAL(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
	mode = 3;
	CHECK_EQUAL(cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_VALUE);
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

	CHECK_OK(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK_OK(cuCtxSetCurrent(context));
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
	CHECK_EQUAL(asker.result, spoils ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
	CHECK_EQUAL(asker.ended, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
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
	CHECK_OK(cuStreamGetCtx(stream, &found));
	CHECK(found == context);
	CHECK_OK(cuDeviceGetMemPool(&current, 0));
	CHECK_OK(cuCtxGetCurrent(&found));
	CHECK_OK(cuCtxGetDevice(&device));
	end(true);
}

static void test_refused(void)
{
	CUstreamCaptureStatus status;
	CUstream blocking;
	CUdeviceptr p, q;
	CUevent event;
	CUgraph graph;

	CHECK_OK(cuMemAlloc_v2(&p, 1));
	CHECK_OK(cuEventCreate(&event, 0));
	CHECK_EQUAL(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
	CHECK_EQUAL(cuStreamBeginCapture_v2(NULL, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	CHECK_EQUAL(cuStreamBeginCapture_v2(stream, 3), CUDA_ERROR_INVALID_VALUE);
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CHECK_EQUAL(cuStreamBeginCapture_v2(stream, 0), CUDA_ERROR_ILLEGAL_STATE);
	CHECK_EQUAL(cuMemFreeAsync(p, stream), CUDA_ERROR_INVALID_VALUE); /* not the graph's */
	CHECK_OK(cuEventRecord(event, stream));
	CHECK_EQUAL(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
	CHECK_OK(launch(NULL)); /* it does not wait for this one */
	CHECK_EQUAL(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	end(false);
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	CHECK_EQUAL(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	end(false);
	CHECK_OK(cuStreamCreate(&blocking, 0));
	CHECK_OK(cuStreamBeginCapture_v2(blocking, 0));
	CHECK_OK(cuMemAllocAsync(&q, 100, blocking));
	CHECK_EQUAL(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	CHECK_OK(cuStreamIsCapturing(blocking, &status));
	CHECK_EQUAL(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	CHECK_EQUAL(cuMemsetD8_v2(p, 1, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	CHECK_OK(cuStreamIsCapturing(blocking, &status));
	CHECK_EQUAL(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	CHECK_OK(cuStreamDestroy_v2(blocking)); /* ends it, too */
	CHECK_OK(cuMemsetD8_v2(p, 1, 1));
	CHECK_OK(cuMemFree_v2(p));
}

static void test_all(void)
{
	CUmodule module;

	context = selftest_context();
	CHECK_OK(cuDeviceGetDefaultMemPool(&pool, 0));
	CHECK_OK(cuModuleLoadData(&module, ptx));
	CHECK_OK(cuModuleGetFunction(&spin, module, "spin_ns"));
	CHECK_OK(cuStreamCreate(&stream, 1));
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
