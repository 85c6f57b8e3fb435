/*
 * Copies and fills. In a captured stream they become nodes.
 *
 *     within a GPU             takes the GPU's time, at VGPU_SIM_COPY_MB_S. The memory changes at
 *                              once; no kernel reads memory, so no program can see that
 *     from or to the host,     takes no time. The call waits for the stream, also an asynchronous
 *     by default               one, and then the copy is done at once
 *     from or to the host,     an asynchronous copy takes time in its stream, and does not delay
 *     VGPU_SIM_HOST_COPY_MB_S  others
 *     in a stream with a       is done when its time has come, and an asynchronous call does not
 *     backlog (backlog.c)      wait. A copy in the default stream counts as synchronous
 *
 * A device address that no allocation covers is refused. Host addresses are not checked.
 */
#include "sim.h"

#include <string.h>

/* Whether the whole range is device memory. It may extend over adjacent mappings, but not over
 * adjacent allocations. */
static bool on_device(uint64_t address, size_t bytes, unsigned access)
{
	struct memory_range range;

	while (memory_find(address, &range) && (range.access & access) == access) {
		size_t rest = range.bytes - (address - range.address);

		if (bytes <= rest)
			return true;
		if (!address_map_find(address, &range))
			return false;
		address += rest;
		bytes -= rest;
	}
	return false;
}

/* Whether the address is a mapping without access, which would kill a process that touches it. */
static bool is_shut(uint64_t address)
{
	struct memory_range range;

	return address_map_find(address, &range) && !range.access;
}

/* The size of a side, from its first byte to the last. */
static bool side_bytes(const struct transfer_side *side, const struct graph_work *work,
		       size_t *ret_bytes)
{
	size_t rows, slices;

	if ((work->rows > 1 && side->pitch < work->bytes) ||
	    __builtin_mul_overflow(work->rows - 1, side->pitch, &rows) ||
	    __builtin_mul_overflow(work->slices - 1, side->slice, &slices))
		return false;
	return !__builtin_add_overflow(rows, slices, ret_bytes) &&
	       !__builtin_add_overflow(*ret_bytes, work->bytes, ret_bytes);
}

static bool side_valid(const struct transfer_side *side, const struct graph_work *work,
		       unsigned access)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;
	size_t bytes;

	if (side->array)
		return array_describe(side->array, &desc) == CUDA_SUCCESS;
	return side->address && !is_shut(side->address) && side_bytes(side, work, &bytes) &&
	       (!side->on_device || on_device(side->address, bytes, access));
}

static bool is_empty(const struct graph_work *work)
{
	return !work->bytes || !work->rows || !work->slices;
}

static bool transfer_valid(const struct graph_work *work)
{
	bool fills = work->type == CU_GRAPH_NODE_TYPE_MEMSET;

	if (is_empty(work))
		return true;
	if (fills && (work->target.address | work->target.pitch) % work->element_bytes)
		return false;
	return side_valid(&work->target, work, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) &&
	       (fills || side_valid(&work->source, work, CU_MEM_ACCESS_FLAGS_PROT_READ));
}

static void row_fill(uint64_t target, const struct graph_work *work)
{
	uint32_t *words = (uint32_t *)(uintptr_t)target;
	uint16_t *halves = (uint16_t *)words;

	if (work->element_bytes == 1)
		memset(words, (int)work->value, work->bytes);
	else if (work->element_bytes == 2)
		for (size_t i = 0; i < work->bytes / sizeof *halves; i++)
			halves[i] = (uint16_t)work->value;
	else
		for (size_t i = 0; i < work->bytes / sizeof *words; i++)
			words[i] = work->value;
}

static uint64_t row_of(const struct transfer_side *side, size_t row, size_t slice)
{
	return side->address + row * side->pitch + slice * side->slice;
}

CUresult transfer_do(const struct graph_work *work)
{
	if (!transfer_valid(work))
		return CUDA_ERROR_INVALID_VALUE;
	if (is_empty(work) || work->target.array || work->source.array)
		return CUDA_SUCCESS;
	for (size_t slice = 0; slice < work->slices; slice++) {
		for (size_t row = 0; row < work->rows; row++) {
			uint64_t target = row_of(&work->target, row, slice);

			if (work->type == CU_GRAPH_NODE_TYPE_MEMSET)
				row_fill(target, work);
			else
				memmove((void *)(uintptr_t)target,
					(void *)(uintptr_t)row_of(&work->source, row, slice),
					work->bytes);
		}
	}
	return CUDA_SUCCESS;
}

static bool is_in_gpu(const struct transfer_side *side)
{
	struct memory_range range;

	return side->array ||
	       (memory_find(side->address, &range) && range.kind != BLOCK_SPACE_HOST);
}

/* The duration on the device; 0: the device does not do the work. */
static uint64_t duration(const struct graph_work *work)
{
	uint64_t bytes = work->bytes * work->rows * work->slices;

	if (is_empty(work) || !transfer_valid(work) || !is_in_gpu(&work->target) ||
	    (work->type == CU_GRAPH_NODE_TYPE_MEMCPY && !is_in_gpu(&work->source)))
		return 0;
	return bytes * 1000 / config_get()->copy_mb_s + 1;
}

/* The duration of work that the device does not do; 0: it takes no time. */
static uint64_t host_duration(const struct graph_work *work)
{
	uint64_t speed = config_get()->host_copy_mb_s;

	return work->duration_ns || is_empty(work) || !speed
		       ? 0
		       : work->bytes * work->rows * work->slices * 1000 / speed + 1;
}

static CUresult queue_behind_backlog(CUstream stream, bool waits, const struct graph_work *work)
{
	if (!transfer_valid(work))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = backlog_work(stream, work);
	if (!result && waits && !work->duration_ns)
		stream_wait(stream);
	return result;
}

static CUresult queue(CUstream stream, bool waits, const struct graph_work *work)
{
	if (!work->duration_ns && !work->host_ns)
		timeline_sleep_until(stream_ready_at(stream));
	CUresult result = transfer_do(work);
	if (result)
		return result;
	if (work->duration_ns)
		stream_launch(stream, work->duration_ns);
	if (!work->host_ns)
		return CUDA_SUCCESS;
	uint64_t now = timeline_now(), ready = stream_ready_at(stream);
	uint64_t end = stream_mark(stream, (ready > now ? ready : now) + work->host_ns);
	if (waits)
		timeline_sleep_until(end);
	return CUDA_SUCCESS;
}

CUresult transfer_prepare(struct graph_work *work)
{
	if (!transfer_valid(work))
		return CUDA_ERROR_INVALID_VALUE;
	work->duration_ns = duration(work);
	return CUDA_SUCCESS;
}

CUresult transfer_submit(const char *function, CUstream handle, bool per_thread,
			 struct graph_work *work)
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
	work->duration_ns = duration(work);
	if (capturing)
		return transfer_valid(work) ? capture_work(stream, work) : CUDA_ERROR_INVALID_VALUE;
	work->host_ns = host_duration(work);
	return backlogs_any(context) ? queue_behind_backlog(stream, !handle, work)
				     : queue(stream, !handle, work);
}
