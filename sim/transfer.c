/*
 * Copies and fills. They take no time on the timeline: each waits for its stream, the asynchronous
 * ones too, and then does it at once. In a stream that is captured they become nodes. A device
 * address that no allocation covers is refused; host addresses are the application's own risk.
 */
#include "sim.h"

#include <string.h>

/* Which sides must be device memory. */
enum {
	SIDE_TARGET = 1,
	SIDE_SOURCE = 2,
};

/* Adjacent mappings are as good as one, adjacent allocations are not. */
static bool on_device(uint64_t address, size_t bytes, unsigned access)
{
	struct memory_range range;

	while (memory_find(address, &range) && (range.access & access) == access) {
		size_t rest = range.bytes - (address - range.address);

		if (bytes <= rest)
			return true;
		if (!region_find(address, &range))
			return false;
		address += rest;
		bytes -= rest;
	}
	return false;
}

/* Touching it would end the process. */
static bool is_shut(uint64_t address)
{
	struct memory_range range;

	return region_find(address, &range) && !range.access;
}

static bool transfer_valid(const struct graph_work *work)
{
	bool fills = work->type == CU_GRAPH_NODE_TYPE_MEMSET;

	if (!work->bytes)
		return true;
	if (fills && work->target % work->element_bytes)
		return false;
	return work->target && (fills || work->source) && !is_shut(work->target) &&
	       (fills || !is_shut(work->source)) &&
	       (!(work->sides & SIDE_TARGET) ||
		on_device(work->target, work->bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) &&
	       (!(work->sides & SIDE_SOURCE) ||
		on_device(work->source, work->bytes, CU_MEM_ACCESS_FLAGS_PROT_READ));
}

CUresult transfer_do(const struct graph_work *work)
{
	unsigned *words = (unsigned *)(uintptr_t)work->target;

	if (!transfer_valid(work))
		return CUDA_ERROR_INVALID_VALUE;
	if (!work->bytes)
		return CUDA_SUCCESS;
	if (work->type == CU_GRAPH_NODE_TYPE_MEMCPY)
		memmove(words, (const void *)(uintptr_t)work->source, work->bytes);
	else if (work->element_bytes == 1)
		memset(words, (int)work->value, work->bytes);
	else
		for (size_t i = 0; i < work->bytes / sizeof *words; i++)
			words[i] = work->value;
	return CUDA_SUCCESS;
}

/* Waits for the stream, and does it; or makes a node of it. */
static CUresult submit(const char *function, CUstream handle, bool per_thread,
		       const struct graph_work *work)
{
	CUstream stream;
	CUcontext context;
	bool capturing;
	CUresult result = enter_context(function, &context);

	if (!result)
		result = stream_resolve(context, handle, per_thread, &stream);
	if (!result)
		result = capture_enter(stream, &capturing);
	if (result)
		return result;
	if (capturing)
		return transfer_valid(work) ? capture_work(stream, work) : CUDA_ERROR_INVALID_VALUE;
	timeline_sleep_until(stream_ready_at(stream));
	return transfer_do(work);
}

static CUresult copy(const char *function, uint64_t target, uint64_t source, size_t bytes,
		     unsigned sides, CUstream stream, bool per_thread)
{
	const struct graph_work work = {
		.type = CU_GRAPH_NODE_TYPE_MEMCPY,
		.target = target,
		.source = source,
		.bytes = bytes,
		.sides = sides,
	};

	return submit(function, stream, per_thread, &work);
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	return copy(__func__, dst, src, ByteCount, 0, NULL, false);
}

CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	return copy(__func__, dst, src, ByteCount, 0, NULL, true);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
	return copy(__func__, dstDevice, (uintptr_t)srcHost, ByteCount, SIDE_TARGET, NULL, false);
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
	return copy(__func__, dstDevice, (uintptr_t)srcHost, ByteCount, SIDE_TARGET, NULL, true);
}

CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	return copy(__func__, (uintptr_t)dstHost, srcDevice, ByteCount, SIDE_SOURCE, NULL, false);
}

CUresult cuMemcpyDtoH_v2_ptds(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	return copy(__func__, (uintptr_t)dstHost, srcDevice, ByteCount, SIDE_SOURCE, NULL, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	return copy(__func__, dstDevice, srcDevice, ByteCount, SIDE_TARGET | SIDE_SOURCE, NULL,
		    false);
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	return copy(__func__, dstDevice, srcDevice, ByteCount, SIDE_TARGET | SIDE_SOURCE, NULL,
		    true);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
			      CUstream hStream)
{
	return copy(__func__, dstDevice, (uintptr_t)srcHost, ByteCount, SIDE_TARGET, hStream,
		    false);
}

CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
				   CUstream hStream)
{
	return copy(__func__, dstDevice, (uintptr_t)srcHost, ByteCount, SIDE_TARGET, hStream, true);
}

CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
			      CUstream hStream)
{
	return copy(__func__, (uintptr_t)dstHost, srcDevice, ByteCount, SIDE_SOURCE, hStream,
		    false);
}

CUresult cuMemcpyDtoHAsync_v2_ptsz(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
				   CUstream hStream)
{
	return copy(__func__, (uintptr_t)dstHost, srcDevice, ByteCount, SIDE_SOURCE, hStream, true);
}

/* N elements of 1 or 4 bytes. */
static CUresult fill(const char *function, uint64_t target, unsigned value, unsigned element_bytes,
		     size_t count, CUstream stream, bool per_thread)
{
	struct graph_work work = {
		.type = CU_GRAPH_NODE_TYPE_MEMSET,
		.target = target,
		.sides = SIDE_TARGET,
		.value = value,
		.element_bytes = element_bytes,
	};

	if (__builtin_mul_overflow(count, element_bytes, &work.bytes))
		work.bytes = SIZE_MAX;
	return submit(function, stream, per_thread, &work);
}

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	return fill(__func__, dstDevice, uc, 1, N, NULL, false);
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	return fill(__func__, dstDevice, uc, 1, N, NULL, true);
}

CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	return fill(__func__, dstDevice, ui, sizeof ui, N, NULL, false);
}

CUresult cuMemsetD32_v2_ptds(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	return fill(__func__, dstDevice, ui, sizeof ui, N, NULL, true);
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
	return fill(__func__, dstDevice, uc, 1, N, hStream, false);
}

CUresult cuMemsetD8Async_ptsz(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
	return fill(__func__, dstDevice, uc, 1, N, hStream, true);
}
