/*
 * The memory of graphs: what their allocation nodes need of a device, and when.
 *
 * An allocation node has its address from the beginning, which costs no memory. A device reserves
 * memory for graphs in chunks of 32 MiB, when a graph is uploaded or launched:
 *
 *     reserved >= the most that the graph needs at a time
 *               + the needs of graphs that may run at the same time
 *               + allocations that no graph has freed
 *
 * Graphs that do not run at the same time share memory. Only a trim gives memory back. All this was
 * measured on a real driver.
 *
 * Each exec that allocates has a hold with its needs. The hold stays after the end of the exec,
 * until all its allocations are freed. Under the graphs lock.
 */
#include "graph.h"

#include <stdlib.h>

struct device_memory {
	uint64_t reserved_bytes, reserved_high_bytes, used_high_bytes;
};

static struct device_memory memories[SIM_GPUS_MAX]; /* by device */
static struct graph_hold *holds;

CUresult graph_space_open_locked(CUdevice device, size_t bytes, struct graph_space **ret_space)
{
	const size_t most = (size_t)1 << 48;
	struct graph_space *space = bytes > most ? NULL : calloc(1, sizeof *space);

	if (!space)
		return CUDA_ERROR_OUT_OF_MEMORY;
	space->references = 1;
	space->space.device = device;
	space->space.bytes = (bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
	CUresult result = memory_space_open(&space->space, BLOCK_SPACE);
	if (result) {
		free(space);
		return result;
	}
	*ret_space = space;
	return CUDA_SUCCESS;
}

void graph_space_put_locked(struct graph_space *space)
{
	SIM_ASSERT(space->references);
	if (--space->references)
		return;
	memory_space_close(&space->space);
	free(space);
}

struct graph_space *graph_space_find_locked(uint64_t address)
{
	struct memory_range range;

	if (!memory_find(address, &range) || range.kind != BLOCK_SPACE || range.pool ||
	    range.address != address)
		return NULL;
	return (struct graph_space *)range.space;
}

void graph_space_live_locked(struct graph_space *space, struct graph_hold *hold)
{
	space->live = true;
	space->references++;
	space->hold = hold;
	hold->live_bytes += space->space.bytes;
}

void graph_space_dead_locked(struct graph_space *space, uint64_t until_ns)
{
	SIM_ASSERT(space->live && space->hold->live_bytes >= space->space.bytes);
	space->live = false;
	space->hold->live_bytes -= space->space.bytes;
	if (space->hold->until_ns < until_ns)
		space->hold->until_ns = until_ns;
	graph_space_put_locked(space);
}

bool graph_give(uint64_t address, CUstream stream, CUresult *ret_result)
{
	graphs_lock();
	struct graph_space *space = graph_space_find_locked(address);
	if (space) {
		*ret_result = space->live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
		if (space->live)
			graph_space_dead_locked(space, stream ? stream_mark(stream, 0) : 0);
	}
	graphs_unlock();
	return space != NULL;
}

/* The bytes that an allocation can take from allocations that were freed before it. */
static uint64_t reuse(uint64_t *freed_bytes, const unsigned char *ancestors, size_t count,
		      uint64_t wanted)
{
	uint64_t found = 0;

	for (size_t i = 0; i < count && found < wanted; i++) {
		uint64_t part = ancestors[i] ? freed_bytes[i] : 0;

		if (part > wanted - found)
			part = wanted - found;
		freed_bytes[i] -= part;
		found += part;
	}
	return found;
}

static CUresult peak_locked(CUgraph graph, uint64_t *ret_bytes);

/* The bytes that the node allocates, and those of them that are free after it. */
static CUresult node_bytes_locked(CUgraphNode node, uint64_t *ret_bytes, uint64_t *ret_freed)
{
	CUresult result = CUDA_SUCCESS;

	*ret_bytes = 0;
	*ret_freed = 0;
	if (node->child) {
		result = peak_locked(node->child, ret_bytes);
		*ret_freed = *ret_bytes;
	} else if (node->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
		*ret_bytes = node->space->space.bytes;
	} else if (node->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE && !node->frees_other) {
		*ret_freed = node->space->space.bytes;
	}
	return result;
}

/* The most that the graph needs at a time. An allocation can use the memory of another one that is
 * freed by a node on which it depends. */
static CUresult peak_locked(CUgraph graph, uint64_t *ret_bytes)
{
	uint64_t *freed_bytes = calloc(graph->count + 1, sizeof *freed_bytes), peak = 0;
	CUresult result = freed_bytes ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	for (CUgraphNode node = graph->first; node && !result; node = node->next) {
		uint64_t bytes, freed;

		result = node_bytes_locked(node, &bytes, &freed);
		unsigned char *ancestors = bytes ? node_ancestors_locked(node) : NULL;
		if (bytes && !ancestors)
			result = CUDA_ERROR_OUT_OF_MEMORY;
		if (ancestors)
			peak += bytes - reuse(freed_bytes, ancestors, graph->count, bytes);
		freed_bytes[node->index] = freed;
		free(ancestors);
	}
	free(freed_bytes);
	*ret_bytes = peak;
	return result;
}

static CUgraphNode first_alloc_locked(CUgraph graph)
{
	for (CUgraphNode node = graph->first; node; node = node->next) {
		CUgraphNode inner = node->child ? first_alloc_locked(node->child) : NULL;

		if (inner || node->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
			return inner ? inner : node;
	}
	return NULL;
}

CUresult graph_hold_open_locked(CUgraph graph, struct graph_hold **ret_hold)
{
	CUgraphNode node = first_alloc_locked(graph);

	*ret_hold = NULL;
	if (!node)
		return CUDA_SUCCESS;
	struct graph_hold *hold = calloc(1, sizeof *hold);
	if (!hold)
		return CUDA_ERROR_OUT_OF_MEMORY;
	hold->device = node->properties.location.id;
	CUresult result = peak_locked(graph, &hold->peak_bytes);
	if (result) {
		free(hold);
		return result;
	}
	hold->owned = true;
	hold->next = holds;
	holds = hold;
	*ret_hold = hold;
	return CUDA_SUCCESS;
}

/* Frees holds without an exec that need no memory any more. */
static void holds_sweep_locked(uint64_t now)
{
	for (struct graph_hold **at = &holds; *at;) {
		struct graph_hold *hold = *at;

		if (hold->owned || hold->live_bytes || hold->until_ns > now) {
			at = &hold->next;
			continue;
		}
		*at = hold->next;
		free(hold);
	}
}

void graph_hold_close_locked(struct graph_hold *hold)
{
	hold->owned = false;
	holds_sweep_locked(timeline_now());
}

static uint64_t hold_bytes(const struct graph_hold *hold, uint64_t now)
{
	return hold->until_ns > now ? hold->peak_bytes : hold->live_bytes;
}

/* The needs of all other holds on the device while that one runs in the stream. */
static uint64_t needed_locked(CUdevice device, const struct graph_hold *but, CUstream stream)
{
	uint64_t now = timeline_now(), needed = 0;

	for (const struct graph_hold *hold = holds; hold; hold = hold->next) {
		if (hold->device == device && hold != but)
			needed += chunks_round(
				hold_bytes(hold, hold->stream == stream ? UINT64_MAX : now));
	}
	return needed;
}

static uint64_t used_locked(CUdevice device)
{
	uint64_t now = timeline_now(), used = 0;

	for (const struct graph_hold *hold = holds; hold; hold = hold->next)
		used += hold->device == device ? hold_bytes(hold, now) : 0;
	return used;
}

CUresult graph_hold_reserve_locked(struct graph_hold *hold, CUstream stream)
{
	struct device_memory *memory = &memories[hold->device];
	uint64_t needed =
		chunks_round(hold->peak_bytes) + needed_locked(hold->device, hold, stream);
	unsigned gpu;

	if (needed > memory->reserved_bytes) {
		struct machine_holding holding = {.memory_bytes = needed - memory->reserved_bytes};

		if (!device_gpu(hold->device, &gpu) || machine_take(gpu, &holding))
			return CUDA_ERROR_OUT_OF_MEMORY;
		memory->reserved_bytes = needed;
	}
	if (memory->reserved_high_bytes < memory->reserved_bytes)
		memory->reserved_high_bytes = memory->reserved_bytes;
	return CUDA_SUCCESS;
}

void graph_hold_run_locked(struct graph_hold *hold, CUstream stream, uint64_t until_ns)
{
	struct device_memory *memory = &memories[hold->device];

	hold->stream = stream;
	hold->until_ns = until_ns;
	uint64_t used = used_locked(hold->device) - hold_bytes(hold, timeline_now());
	if (memory->used_high_bytes < used + hold->peak_bytes)
		memory->used_high_bytes = used + hold->peak_bytes;
}

void graph_memory_trim(CUdevice device)
{
	struct device_memory *memory = &memories[device];
	unsigned gpu;

	graphs_lock();
	holds_sweep_locked(timeline_now());
	uint64_t needed = needed_locked(device, NULL, NULL);
	if (needed < memory->reserved_bytes && device_gpu(device, &gpu)) {
		struct machine_holding holding = {.memory_bytes = memory->reserved_bytes - needed};

		machine_give(gpu, &holding);
		memory->reserved_bytes = needed;
	}
	graphs_unlock();
}

CUresult graph_memory_get(CUdevice device, CUgraphMem_attribute attribute, uint64_t *ret_bytes)
{
	const struct device_memory *memory = &memories[device];
	CUresult result = CUDA_SUCCESS;

	graphs_lock();
	switch (attribute) {
	case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
		*ret_bytes = used_locked(device);
		break;
	case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
		*ret_bytes = memory->used_high_bytes;
		break;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
		*ret_bytes = memory->reserved_bytes;
		break;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
		*ret_bytes = memory->reserved_high_bytes;
		break;
	default:
		result = CUDA_ERROR_INVALID_VALUE;
	}
	graphs_unlock();
	return result;
}

CUresult graph_memory_reset(CUdevice device, CUgraphMem_attribute attribute)
{
	struct device_memory *memory = &memories[device];
	CUresult result = CUDA_SUCCESS;

	graphs_lock();
	if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
		memory->used_high_bytes = used_locked(device);
	else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		memory->reserved_high_bytes = memory->reserved_bytes;
	else
		result = CUDA_ERROR_INVALID_VALUE;
	graphs_unlock();
	return result;
}
