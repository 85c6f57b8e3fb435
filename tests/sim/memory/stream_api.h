/* Shared by the tests of stream-ordered memory and of graphs: a stream, work in it, and checks
 * of the ledger. */
#pragma once

#include <unistd.h>

#include "cuda_api.h"

#define POOL_CHUNK (32 * MIB)          /* pools and graph memory grow by this */
#define MS         ((uint64_t)1000000) /* in ns */

#define NON_BLOCKING 1 /* a stream that does not wait for the default one */
#define PER_THREAD   ((CUstream)2)

/* Starts CUDA with that memory limit, and makes a context whose cost is known. Returns a
 * stream. */
static inline CUstream stream_start(const char *limit)
{
	CUstream stream = NULL;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	cuda_start(0);
	give(take(1)); /* settles the context */
	CHECK_OK(cuStreamCreate(&stream, NON_BLOCKING));
	return stream;
}

/* Checks that `data` bytes are charged as data, and that all charges equal NVML's figure
 * outside. */
static inline void assert_books(uint64_t data)
{
	struct vgpu_hami_usage usage = ledger_own(0);

	CHECK_EQUAL(usage.data, data);
	CHECK_EQUAL(outside_of(0, getpid()), usage.context + usage.module + usage.data);
}

/* The same, and that no charge came from a comparison with NVML alone. */
static inline void assert_data(uint64_t data)
{
	assert_books(data);
	CHECK_EQUAL(ledger_own(0).module, 0);
	CHECK_EQUAL(ledger_own(0).context, CONTEXT);
}

/* Checks that the charges are at least what the device holds, even while calls are in
 * progress. */
static inline void assert_covered(void)
{
	uint64_t outside = outside_of(0, getpid());
	struct vgpu_hami_usage usage = ledger_own(0);

	CHECK_AT_MOST(outside, usage.context + usage.module + usage.data);
}

static inline CUdeviceptr take_async(uint64_t bytes, CUstream stream)
{
	CUdeviceptr address = 0;

	CHECK_OK(cuMemAllocAsync(&address, bytes, stream));
	CHECK(address != 0);
	return address;
}

static inline void give_async(CUdeviceptr address, CUstream stream)
{
	CHECK_OK(cuMemFreeAsync(address, stream));
}

static inline void refused_async(uint64_t bytes, CUstream stream)
{
	CUdeviceptr address = UNTOUCHED;

	CHECK_EQUAL(cuMemAllocAsync(&address, bytes, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(address, UNTOUCHED);
}

static inline void synchronise(CUstream stream)
{
	CHECK_OK(cuStreamSynchronize(stream));
}

/* A graph that allocates and frees so much memory. */
static inline CUgraphExec graph_exec_of(uint64_t bytes)
{
	CUDA_MEM_ALLOC_NODE_PARAMS wanted = {.poolProps = POOL_OF_GPU_0, .bytesize = bytes};
	CUgraph graph;
	CUgraphNode node, last;
	CUgraphExec exec;

	CHECK_OK(cuGraphCreate(&graph, 0));
	CHECK_OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &wanted));
	CHECK_OK(cuGraphAddMemFreeNode(&last, graph, &node, 1, wanted.dptr));
	CHECK_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

static inline CUfunction spin_load(void)
{
	static const char ptx[] = ".version 7.0\n.entry spin_ns(.param .u64 ns) { ret; }\n";
	CUmodule module;
	CUfunction spin;

	CHECK_OK(cuModuleLoadData(&module, ptx));
	CHECK_OK(cuModuleGetFunction(&spin, module, "spin_ns"));
	return spin;
}

/* Keeps the stream busy for `ns`. */
static inline void busy(CUfunction spin, uint64_t ns, CUstream stream)
{
	void *parameters[] = {&ns};

	CHECK_OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}
