/*
 * Graphs whose memory nodes take device memory. Such a node is made by cuGraphAddMemAllocNode, or
 * by the capture of a cuMemAllocAsync. The node takes addresses only. The upload or the launch of
 * an executable graph takes the memory, from the device's graph memory, which keeps it until
 * cuDeviceGraphMemTrim. Graph memory is charged as a pool is, by its reserved bytes (quota/pool.h).
 *
 * A launch takes at most the sum of the graph's memory nodes. That sum is computed at
 * instantiation. It is reserved before each launch; after the launch, the part that the driver has
 * not taken is returned. An executable graph that was launched since the last trim has its memory
 * already, and is launched also if there is no room for the sum. A graph without memory nodes costs
 * one load.
 */
#include <errno.h>
#include <string.h>

#include "blocks.h"
#include "cuda.h"
#include "headroom.h"
#include "hooks.h"
#include "launch.h"
#include "lazy_code.h"
#include "lock.h"
#include "pace.h"
#include "pools.h"
#include "quota.h"
#include "sys.h"
#include "table.h"
#include "trace.h"

static struct lock lock = LOCK_INIT;
static struct lock unreserved = LOCK_INIT; /* of launches without a reservation; before `lock` */
static struct table needs;                 /* bytes by executable graph and device; under `lock` */
static size_t need_count;                  /* its entries; written under `lock`, read without */
static uint32_t trims;   /* how often graph memory was trimmed, or turned out short; likewise */
static unsigned devices; /* a bit for each device on which a graph needs memory; likewise */

void graphs_forked(void)
{
	lock_init(&lock);
	lock_init(&unreserved);
	table_clear(&needs);
	need_count = 0;
	devices = 0;
}

/* -- what a graph needs ------------------------------------------------------------------------ */

/* The bytes that a graph's nodes may take of each device. */
struct need {
	uint64_t bytes[VGPU_DEVICES_MAX];
	uint32_t launched[VGPU_DEVICES_MAX]; /* `trims` + 1 at the last launch; 0: none */
	bool any;
};

/* A graph whose nodes are being looked at, and the graph that it is a child of. The depth is
 * limited by memory only. */
struct level {
	struct level *outer;
	size_t size_bytes; /* of the mapping */
	size_t count, next;
	CUgraphNode nodes[];
};

/* Begins to look at the nodes of a graph. False: there is no memory for that, or the driver does
 * not say them. */
static bool enter(struct level **level, CUgraph graph)
{
	size_t count = 0, size;
	struct level *inner;
	void *address;

	if (cuda.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS)
		return false;
	if (count == 0)
		return true;
	size = sizeof(*inner) + count * sizeof(CUgraphNode);
	if (sys_map_private(size, &address) != 0)
		return false;
	inner = address;
	*inner = (struct level){.outer = *level, .size_bytes = size, .count = count};
	*level = inner;
	return cuda.cuGraphGetNodes(graph, inner->nodes, &inner->count) == CUDA_SUCCESS;
}

static void leave(struct level **level)
{
	struct level *inner = *level;

	*level = inner->outer;
	sys_unmap(inner, inner->size_bytes);
}

static bool add_allocation(struct need *need, CUgraphNode node)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = 0};
	CUresult result = cuda.cuGraphMemAllocNodeGetParams(node, &params);

	if (result != CUDA_SUCCESS)
		return result == CUDA_ERROR_NOT_SUPPORTED; /* NVML's figure has it later */
	if (params.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    !quota_has_device(params.poolProps.location.id))
		return true;
	need->bytes[params.poolProps.location.id] += granules_of(params.bytesize);
	need->any = true;
	return true;
}

static bool add_node(struct need *need, struct level **level, CUgraphNode node)
{
	CUgraphNodeType type;
	CUgraph child;

	if (cuda.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
		return false;
	if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		return add_allocation(need, node);
	return type != CU_GRAPH_NODE_TYPE_GRAPH ||
	       (cuda.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS &&
		enter(level, child));
}

/* Adds the needs of the graph and of its child graphs. False: they cannot all be looked at. */
static bool add_graph(struct need *need, CUgraph graph)
{
	struct level *level = NULL;
	bool good = enter(&level, graph);

	while (level)
		if (good && level->next < level->count)
			good = add_node(need, &level, level->nodes[level->next++]);
		else
			leave(&level);
	return good;
}

/* The handle of an executable graph is a pointer, and the device is put into its low bits. */
static uint64_t key_of(CUgraphExec exec, CUdevice device)
{
	return (uint64_t)(uintptr_t)exec | (uint64_t)device;
}

/* The table may have another graph under the handle, whose end was not seen. */
static void remember(CUgraphExec exec, const struct need *need)
{
	lock_acquire(&lock);
	for (CUdevice device = 0; device < VGPU_DEVICES_MAX; device++) {
		struct entry *entry = NULL;

		if (!need->bytes[device])
			continue;
		quota_pool_open(GRAPH_POOL(device), device, POOL_OF_DRIVER);
		entry = table_find(&needs, key_of(exec, device));
		if (!entry)
			entry = table_add(&needs, key_of(exec, device));
		if (entry) {
			entry->amount = need->bytes[device];
			entry->launched = need->launched[device];
		}
		devices |= 1u << device;
	}
	__atomic_store_n(&need_count, needs.count, __ATOMIC_RELEASE);
	lock_release(&lock);
}

/* Removes the executable graph from the table. *ret_need: the memory that it needed. */
static void forget(CUgraphExec exec, struct need *ret_need)
{
	memset(ret_need, 0, sizeof(*ret_need));
	lock_acquire(&lock);
	for (CUdevice device = 0; device < VGPU_DEVICES_MAX; device++) {
		struct entry *entry = table_find(&needs, key_of(exec, device));

		if (!entry)
			continue;
		ret_need->bytes[device] = entry->amount;
		ret_need->launched[device] = entry->launched;
		ret_need->any = true;
		table_remove(&needs, entry);
	}
	__atomic_store_n(&need_count, needs.count, __ATOMIC_RELEASE);
	lock_release(&lock);
}

/* -- launching --------------------------------------------------------------------------------- */

/* The reservations for a launch, by device. */
struct launching {
	uint64_t needs[VGPU_DEVICES_MAX]; /* bytes */
	bool has[VGPU_DEVICES_MAX];       /* the graph was launched since the last trim */
	bool alone;                       /* it has `unreserved` */
	struct pool_reservation reservations[VGPU_DEVICES_MAX]; /* worst_bytes 0: none */
};

/* Whether the graph takes memory. The lock is taken once for all devices. */
static bool look_up(struct launching *launching, CUgraphExec exec)
{
	bool any = false;

	lock_acquire(&lock);
	for (CUdevice device = 0; devices >> device; device++) {
		const struct entry *entry = table_find(&needs, key_of(exec, device));

		launching->needs[device] = entry ? entry->amount : 0;
		launching->has[device] = entry && entry->launched == trims + 1;
		any |= entry != NULL;
	}
	lock_release(&lock);
	return any;
}

static void note_launch(CUgraphExec exec, CUdevice device)
{
	struct entry *entry;

	lock_acquire(&lock);
	entry = table_find(&needs, key_of(exec, device));
	if (entry)
		entry->launched = trims + 1;
	lock_release(&lock);
}

/* Graphs that are launched after this may need memory again. */
static void note_trim(void)
{
	lock_acquire(&lock);
	trims++;
	lock_release(&lock);
}

/* A trim that gave nothing back does not count: the graphs still have their memory. */
CUresult graphs_trim(CUdevice device)
{
	struct pool_figure before = {.reserved_bytes = 1}, after = {.reserved_bytes = 0};
	CUstreamCaptureMode mode;
	CUresult result;

	pool_read(GRAPH_POOL(device), &before);
	mode = relaxed_begin();
	result = cuda.cuDeviceGraphMemTrim(device);
	relaxed_end(mode);
	pool_read(GRAPH_POOL(device), &after);
	if (after.reserved_bytes < before.reserved_bytes)
		note_trim();
	return result;
}

static void settle(const struct launching *launching)
{
	struct pool_figure figure;

	for (CUdevice device = 0; device < VGPU_DEVICES_MAX; device++)
		if (launching->reservations[device].worst_bytes)
			quota_pool_settle(GRAPH_POOL(device), &launching->reservations[device],
					  pool_read(GRAPH_POOL(device), &figure) ? &figure : NULL);
}

/* has_memory: the device probably has the graph's memory already. */
static int reserve(CUdevice device, uint64_t bytes, bool has_memory,
		   struct pool_reservation *reservation)
{
	struct pool_figure figure;
	int error = quota_pool_reserve(GRAPH_POOL(device), bytes, reservation);

	if (error != -EAGAIN)
		return error;
	if (!has_memory)
		return pool_grow(GRAPH_POOL(device), bytes, reservation);
	return pool_read(GRAPH_POOL(device), &figure)
		       ? quota_pool_grow(GRAPH_POOL(device), bytes, &figure, reservation)
		       : -ENOENT;
}

/* The graph probably has its memory, and there is no room to reserve it. If the driver takes more
 * for the launch, no other graph counts as having its memory (finish). So such launches are made
 * one at a time. Returns whether the graph still counts as having its memory. */
static bool go_alone(struct launching *launching, CUgraphExec exec, CUdevice device)
{
	if (!launching->has[device])
		return false;
	if (!launching->alone) {
		lock_acquire(&unreserved);
		launching->alone = true;
		look_up(launching, exec);
	}
	return launching->has[device];
}

static void end_alone(struct launching *launching)
{
	if (launching->alone)
		lock_release(&unreserved);
	launching->alone = false;
}

/* Reserves the graph's memory on all devices or on none. */
static CUresult begin_needs(struct launching *launching, CUgraphExec exec)
{
	for (CUdevice device = 0; device < VGPU_DEVICES_MAX; device++) {
		struct pool_reservation reservation;
		int error;

		if (!launching->needs[device])
			continue;
		error = reserve(device, launching->needs[device], launching->has[device],
				&reservation);
		if (error == 0) {
			launching->reservations[device] = reservation;
		} else if (error != -ENOENT &&
			   !(error == -EDQUOT && go_alone(launching, exec, device))) {
			settle(launching);
			end_alone(launching);
			return headroom_refuse(device, launching->needs[device], error);
		}
	}
	return CUDA_SUCCESS;
}

/* CUDA_SUCCESS: call the driver, then finish. */
static CUresult begin(struct launching *launching, CUgraphExec exec, bool *ret_counted)
{
	*ret_counted = false;
	if (!__atomic_load_n(&need_count, __ATOMIC_ACQUIRE))
		return CUDA_SUCCESS;
	memset(launching->reservations, 0, sizeof(launching->reservations));
	memset(launching->needs, 0, sizeof(launching->needs));
	launching->alone = false;
	*ret_counted = look_up(launching, exec);
	return *ret_counted ? begin_needs(launching, exec) : CUDA_SUCCESS;
}

static CUresult finish(struct launching *launching, CUgraphExec exec, bool counted, CUresult result)
{
	if (!counted)
		return result;
	settle(launching);
	for (CUdevice device = 0; device < VGPU_DEVICES_MAX; device++) {
		if (!launching->needs[device])
			continue;
		/* This launch was admitted without a reservation, and took more memory. So no other
		 * graph counts as having its memory. */
		if (!launching->reservations[device].worst_bytes &&
		    pool_correct(GRAPH_POOL(device)))
			note_trim();
		else if (result == CUDA_SUCCESS)
			note_launch(exec, device);
	}
	end_alone(launching);
	return result;
}

/* The driver has answered to a launch that was not held back. */
static CUresult launched(CUgraphExec exec, CUstream stream, CUresult result)
{
	if (lazy_code_any() && lazy_code_is_awaited(exec, stream))
		lazy_code_launched(exec, stream, result == CUDA_SUCCESS);
	return result;
}

static CUresult begin_held(struct launch *launch, CUgraphExec exec, CUstream stream,
			   bool per_thread)
{
	const struct cost_of what = launch_of_graph(exec);

	return launch_begin(launch, stream, per_thread, &what);
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream)
{
	struct launching launching;
	struct launch launch;
	bool counted, held = !pace_is_open();
	CUresult result = held ? begin_held(&launch, hGraph, hStream, false) : CUDA_SUCCESS;

	if (result != CUDA_SUCCESS)
		return result;
	result = TRACE_CALLED(begin(&launching, hGraph, &counted));
	if (result == CUDA_SUCCESS)
		result = finish(&launching, hGraph, counted, cuda.cuGraphLaunch(hGraph, hStream));
	return held ? launch_end(&launch, result) : launched(hGraph, hStream, result);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec hGraph, CUstream hStream)
{
	struct launching launching;
	struct launch launch;
	bool counted, held = !pace_is_open();
	CUresult result = held ? begin_held(&launch, hGraph, hStream, true) : CUDA_SUCCESS;

	if (result != CUDA_SUCCESS)
		return result;
	result = TRACE_CALLED(begin(&launching, hGraph, &counted));
	if (result == CUDA_SUCCESS)
		result = finish(&launching, hGraph, counted,
				cuda.cuGraphLaunch_ptsz(hGraph, hStream));
	return held ? launch_end(&launch, result) : launched(hGraph, hStream, result);
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream)
{
	struct launching launching;
	bool counted;
	CUresult result;

	cuda_bind();
	result = TRACE_CALLED(begin(&launching, hGraph, &counted));
	if (result != CUDA_SUCCESS)
		return result;
	return finish(&launching, hGraph, counted, cuda.cuGraphUpload(hGraph, hStream));
}

CUresult cuGraphUpload_ptsz(CUgraphExec hGraph, CUstream hStream)
{
	struct launching launching;
	bool counted;
	CUresult result;

	cuda_bind();
	result = TRACE_CALLED(begin(&launching, hGraph, &counted));
	if (result != CUDA_SUCCESS)
		return result;
	return finish(&launching, hGraph, counted, cuda.cuGraphUpload_ptsz(hGraph, hStream));
}

/* -- instantiating ----------------------------------------------------------------------------- */

/* The driver has made the executable graph. If its needs cannot be found out, the graph is
 * destroyed and the call refused: the host has no memory left, or another thread destroys the
 * graph. */
static CUresult made(CUresult result, CUgraph graph, const CUgraphExec *exec)
{
	struct need need = {.any = false};

	if (result != CUDA_SUCCESS || !quota_attached())
		return result;
	if (!add_graph(&need, graph)) {
		cuda.cuGraphExecDestroy(*exec);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (need.any)
		remember(*exec, &need);
	lazy_code_handed_out(*exec, LAZY_CODE_ONCE);
	return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
			    char *logBuffer, size_t bufferSize)
{
	cuda_bind();
	return made(
		cuda.cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize),
		hGraph, phGraphExec);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
			       char *logBuffer, size_t bufferSize)
{
	cuda_bind();
	return made(
		cuda.cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize),
		hGraph, phGraphExec);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
				     unsigned long long flags)
{
	cuda_bind();
	return made(cuda.cuGraphInstantiateWithFlags(phGraphExec, hGraph, flags), hGraph,
		    phGraphExec);
}

/* An instantiation that may upload at once: the memory is reserved before the graph is made. */
static CUresult begin_upload(struct launching *launching, CUgraph graph,
			     const CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	struct need need = {.any = false};

	memset(launching, 0, sizeof(*launching));
	if (!quota_attached() || !params || !(params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD))
		return CUDA_SUCCESS;
	if (!add_graph(&need, graph))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!need.any)
		return CUDA_SUCCESS;
	for (CUdevice device = 0; device < VGPU_DEVICES_MAX; device++) {
		launching->needs[device] = need.bytes[device];
		if (need.bytes[device])
			quota_pool_open(GRAPH_POOL(device), device, POOL_OF_DRIVER);
	}
	return begin_needs(launching, NULL);
}

/* The graph that was uploaded has its memory. */
static CUresult uploaded(CUresult result, const struct launching *launching,
			 const CUgraphExec *exec)
{
	for (CUdevice device = 0; result == CUDA_SUCCESS && device < VGPU_DEVICES_MAX; device++)
		if (launching->needs[device])
			note_launch(*exec, device);
	return result;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
				      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	struct launching launching;
	CUresult result;

	cuda_bind();
	result = TRACE_CALLED(begin_upload(&launching, hGraph, instantiateParams));
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuGraphInstantiateWithParams(phGraphExec, hGraph, instantiateParams);
	settle(&launching);
	return uploaded(made(result, hGraph, phGraphExec), &launching, phGraphExec);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
					   CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	struct launching launching;
	CUresult result;

	cuda_bind();
	result = TRACE_CALLED(begin_upload(&launching, hGraph, instantiateParams));
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuGraphInstantiateWithParams_ptsz(phGraphExec, hGraph, instantiateParams);
	settle(&launching);
	return uploaded(made(result, hGraph, phGraphExec), &launching, phGraphExec);
}

/* -- ending ------------------------------------------------------------------------------------ */

/* The graph is removed from the table before the driver's call, as the driver may give its handle
 * to another graph after that. If the driver keeps the graph, it is put back. */
CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	trace_call(__func__);
	const struct cost_of what = launch_of_graph(hGraphExec);
	struct need need;
	CUresult result;

	cuda_bind();
	cost_forget(&what);
	lazy_code_taken_back(hGraphExec);
	if (!__atomic_load_n(&need_count, __ATOMIC_ACQUIRE))
		return cuda.cuGraphExecDestroy(hGraphExec);
	forget(hGraphExec, &need);
	result = cuda.cuGraphExecDestroy(hGraphExec);
	if (result != CUDA_SUCCESS && need.any)
		remember(hGraphExec, &need);
	return result;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	if (!quota_attached() || !quota_has_device(device))
		return cuda.cuDeviceGraphMemTrim(device);
	result = graphs_trim(device);
	if (result == CUDA_SUCCESS)
		pool_correct(GRAPH_POOL(device));
	return result;
}
