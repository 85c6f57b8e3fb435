/*
 * The driver's functions about graphs, over graph.c, graph_exec.c and graph_memory.c.
 */
#include "graph.h"

enum {
	INSTANTIATE_FLAGS_KNOWN = 15, /* auto free, upload, device launch, node priority */
	INSTANTIATE_SUCCESS = 0,      /* CUDA_GRAPH_INSTANTIATE_SUCCESS, …_ERROR */
	INSTANTIATE_ERROR = 1,
};

CUresult enter_graph_locked(const char *function, CUgraph graph, const void *out)
{
	CUresult result = enter(function);

	if (result)
		return result;
	if (!out || !graph_valid(graph))
		return CUDA_ERROR_INVALID_VALUE;
	graphs_lock();
	return CUDA_SUCCESS;
}

static CUresult enter_node(const char *function, CUgraphNode node, const void *out)
{
	CUresult result = enter(function);

	if (result)
		return result;
	return out && node && node->kind == OBJECT_NODE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	if (!phGraph || flags)
		return CUDA_ERROR_INVALID_VALUE;
	CUgraph graph = graph_new_locked();
	if (!graph)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*phGraph = graph;
	return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph hGraph)
{
	CUresult result = enter_graph_locked(__func__, hGraph, hGraph);

	if (result)
		return result;
	if (hGraph->embedded)
		result = CUDA_ERROR_INVALID_VALUE;
	else
		graph_free_locked(hGraph);
	graphs_unlock();
	return result;
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
	CUresult result = enter_graph_locked(__func__, originalGraph, phGraphClone);

	if (result)
		return result;
	CUgraph copy = NULL;
	if (originalGraph->has_memory)
		result = CUDA_ERROR_NOT_SUPPORTED;
	else
		copy = graph_copy_locked(originalGraph);
	graphs_unlock();
	if (result)
		return result;
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*phGraphClone = copy;
	return CUDA_SUCCESS;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
				const CUgraphNode *dependencies, size_t numDependencies,
				CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	CUgraphNode node;
	CUresult result = enter_graph_locked(__func__, hGraph, nodeParams ? phGraphNode : NULL);

	if (result)
		return result;
	result = node_add_alloc_locked(hGraph, dependencies, numDependencies,
				       &nodeParams->poolProps, nodeParams->bytesize, &node);
	if (!result) {
		nodeParams->dptr = node->space->space.address;
		*phGraphNode = node;
	}
	graphs_unlock();
	return result;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			       const CUgraphNode *dependencies, size_t numDependencies,
			       CUdeviceptr dptr)
{
	CUgraphNode node;
	CUresult result = enter_graph_locked(__func__, hGraph, phGraphNode);

	if (result)
		return result;
	result = node_add_free_locked(hGraph, dependencies, numDependencies, dptr, &node);
	if (!result)
		*phGraphNode = node;
	graphs_unlock();
	return result;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			     const CUgraphNode *dependencies, size_t numDependencies)
{
	CUgraphNode node;
	CUresult result = enter_graph_locked(__func__, hGraph, phGraphNode);

	if (result)
		return result;
	result = node_add_locked(hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_EMPTY,
				 &node);
	if (!result)
		*phGraphNode = node;
	graphs_unlock();
	return result;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
				  const CUgraphNode *dependencies, size_t numDependencies,
				  CUgraph childGraph)
{
	CUgraphNode node;
	CUresult result = enter_graph_locked(__func__, hGraph, phGraphNode);

	if (result)
		return result;
	result = node_add_child_locked(hGraph, dependencies, numDependencies, childGraph, &node);
	if (!result)
		*phGraphNode = node;
	graphs_unlock();
	return result;
}

/* nodes_put and nodes_end fill the application's array, which has room for *room nodes; the rest of
 * it becomes NULL. Without an array, they give the number only. */
static void nodes_put(CUgraphNode node, size_t i, CUgraphNode *nodes, const size_t *room)
{
	if (nodes && i < *room)
		nodes[i] = node;
}

static void nodes_end(size_t count, CUgraphNode *nodes, size_t *room)
{
	for (size_t i = count; nodes && i < *room; i++)
		nodes[i] = NULL;
	if (!nodes || count < *room)
		*room = count;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
	CUresult result = enter_graph_locked(__func__, hGraph, numNodes);

	if (result)
		return result;
	for (CUgraphNode node = hGraph->first; node; node = node->next)
		nodes_put(node, node->index, nodes, numNodes);
	nodes_end(hGraph->count, nodes, numNodes);
	graphs_unlock();
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies,
				    size_t *numDependencies)
{
	CUresult result = enter_node(__func__, hNode, numDependencies);

	if (result)
		return result;
	for (size_t i = 0; i < hNode->dependency_count; i++)
		nodes_put(hNode->dependencies[i], i, dependencies, numDependencies);
	nodes_end(hNode->dependency_count, dependencies, numDependencies);
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
	CUresult result = enter_node(__func__, hNode, type);

	if (!result)
		*type = hNode->work.type;
	return result;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
	CUresult result = enter_node(__func__, hNode, params_out);

	if (result)
		return result;
	if (hNode->work.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		return CUDA_ERROR_INVALID_VALUE;
	*params_out = (CUDA_MEM_ALLOC_NODE_PARAMS){
		.poolProps = hNode->properties,
		.bytesize = hNode->work.bytes,
		.dptr = hNode->space->space.address,
	};
	return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
	CUresult result = enter_node(__func__, hNode, dptr_out);

	if (result)
		return result;
	if (hNode->work.type != CU_GRAPH_NODE_TYPE_MEM_FREE)
		return CUDA_ERROR_INVALID_VALUE;
	*dptr_out = hNode->space->space.address;
	return CUDA_SUCCESS;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
	CUresult result = enter_node(__func__, hNode, phGraph);

	if (result)
		return result;
	if (!hNode->child)
		return CUDA_ERROR_INVALID_VALUE;
	*phGraph = hNode->child;
	return CUDA_SUCCESS;
}

/* The local memory of the kernels is taken here, as an H100 with driver 580 does. */
static CUresult instantiate(const char *function, CUgraphExec *ret_exec, CUgraph graph,
			    unsigned long long flags)
{
	uint32_t local_bytes;
	CUcontext context;
	CUresult result = enter_context(function, &context);

	if (result)
		return result;
	if (!ret_exec || !graph_valid(graph) ||
	    flags & ~(unsigned long long)INSTANTIATE_FLAGS_KNOWN)
		return CUDA_ERROR_INVALID_VALUE;
	graphs_lock();
	result = exec_new_locked(graph, flags, ret_exec);
	local_bytes = result ? 0 : exec_local_bytes_locked(*ret_exec);
	graphs_unlock();
	if (!result)
		result = context_take_local(context, local_bytes);
	if (result && local_bytes) {
		graphs_lock();
		exec_free_locked(*ret_exec);
		graphs_unlock();
	}
	return result;
}

static CUresult instantiate_logged(const char *function, CUgraphExec *ret_exec, CUgraph graph,
				   CUgraphNode *ret_error, char *log, size_t log_bytes)
{
	CUresult result = instantiate(function, ret_exec, graph, 0);

	if (ret_error)
		*ret_error = NULL;
	if (log && log_bytes)
		*log = 0;
	return leave(function, result);
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
			    char *logBuffer, size_t bufferSize)
{
	return instantiate_logged(__func__, phGraphExec, hGraph, phErrorNode, logBuffer,
				  bufferSize);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
			       char *logBuffer, size_t bufferSize)
{
	return instantiate_logged(__func__, phGraphExec, hGraph, phErrorNode, logBuffer,
				  bufferSize);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
				     unsigned long long flags)
{
	return leave(__func__, instantiate(__func__, phGraphExec, hGraph, flags));
}

static CUresult enter_exec(const char *function, CUgraphExec exec, CUstream handle, bool per_thread,
			   CUstream *ret_stream)
{
	CUcontext context;
	CUresult result = enter_context(function, &context);

	if (!result)
		result = stream_resolve(context, handle, per_thread, ret_stream);
	if (result)
		return result;
	return exec_valid(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult upload(const char *function, CUgraphExec exec, CUstream handle, bool per_thread)
{
	CUstream stream;
	CUresult result = enter_exec(function, exec, handle, per_thread, &stream);

	if (!result)
		result = capture_refuse(stream);
	if (result)
		return result;
	graphs_lock();
	result = exec_upload_locked(exec, stream);
	graphs_unlock();
	return result;
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream)
{
	return leave(__func__, upload(__func__, hGraph, hStream, false));
}

CUresult cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
	return leave(__func__, upload(__func__, hGraphExec, hStream, true));
}

static CUresult instantiate_params(const char *function, CUgraphExec *ret_exec, CUgraph graph,
				   CUDA_GRAPH_INSTANTIATE_PARAMS *params, bool per_thread)
{
	CUgraphExec exec;
	CUresult result = instantiate(function, params && ret_exec ? &exec : NULL, graph,
				      params ? params->flags : 0);

	if (params)
		params->hErrNode_out = NULL;
	if (!result && params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) {
		result = upload(function, exec, params->hUploadStream, per_thread);
		if (result) {
			graphs_lock();
			exec_free_locked(exec);
			graphs_unlock();
		}
	}
	if (params)
		params->result_out = result ? INSTANTIATE_ERROR : INSTANTIATE_SUCCESS;
	if (!result)
		*ret_exec = exec;
	return leave(function, result);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
				      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	return instantiate_params(__func__, phGraphExec, hGraph, instantiateParams, false);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
					   CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	return instantiate_params(__func__, phGraphExec, hGraph, instantiateParams, true);
}

/* The contexts lock, which loading takes, comes before the graphs lock. */
static CUresult load(CUgraphExec exec, unsigned gpu)
{
	CUresult result = CUDA_SUCCESS;
	CUfunction function;

	do {
		graphs_lock();
		function = exec_unloaded_locked(exec, gpu);
		graphs_unlock();
		if (function)
			result = function_load(function, gpu);
	} while (function && !result);
	return result;
}

/* The kernels may have been changed since the graph was instantiated. */
static CUresult take_local(CUgraphExec exec, CUcontext context)
{
	uint32_t bytes;

	graphs_lock();
	bytes = exec_local_bytes_locked(exec);
	graphs_unlock();
	return context_take_local(context, bytes);
}

static CUresult launch(const char *function, CUgraphExec exec, CUstream handle, bool per_thread)
{
	CUstream stream;
	bool capturing;
	CUresult result = enter_exec(function, exec, handle, per_thread, &stream);

	if (!result)
		result = capture_enter(stream, &capturing);
	if (result)
		return result;
	if (capturing)
		return capture_child(stream, exec_body(exec));
	result = load(exec, stream->context->gpu);
	if (!result)
		result = take_local(exec, stream->context);
	if (result)
		return result;
	graphs_lock();
	result = exec_launch_locked(exec, stream);
	graphs_unlock();
	return leave(function, result);
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream)
{
	return launch(__func__, hGraph, hStream, false);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
	return launch(__func__, hGraphExec, hStream, true);
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	if (!exec_valid(hGraphExec))
		return CUDA_ERROR_INVALID_VALUE;
	graphs_lock();
	exec_free_locked(hGraphExec);
	graphs_unlock();
	return leave(__func__, CUDA_SUCCESS);
}

static CUresult update(const char *function, CUgraphExec exec, CUgraph graph,
		       CUgraphExecUpdateResultInfo *ret_info)
{
	CUresult result = enter_graph_locked(function, graph, exec);

	if (result)
		return result;
	result = exec_valid(exec) ? exec_update_locked(exec, graph, ret_info)
				  : CUDA_ERROR_INVALID_VALUE;
	graphs_unlock();
	return result;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
			   CUgraphExecUpdateResult *updateResult_out)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUresult result = update(__func__, hGraphExec, hGraph, &info);

	if (hErrorNode_out)
		*hErrorNode_out = info.errorNode;
	if (updateResult_out)
		*updateResult_out = info.result;
	return result;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
			      CUgraphExecUpdateResultInfo *resultInfo)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUresult result = update(__func__, hGraphExec, hGraph, &info);

	if (resultInfo && exec_valid(hGraphExec))
		*resultInfo = info;
	return result;
}

static CUresult enter_device(const char *function, CUdevice device, const void *out)
{
	unsigned gpu;
	CUresult result = enter(function);

	if (result)
		return result;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	return device_gpu(device, &gpu) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	CUresult result = enter_device(__func__, device, "");

	if (result)
		return result;
	graph_memory_trim(device);
	return leave(__func__, CUDA_SUCCESS);
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	CUresult result = enter_device(__func__, device, value);
	uint64_t bytes;

	if (!result)
		result = graph_memory_get(device, attr, &bytes);
	if (!result)
		*(cuuint64_t *)value = bytes;
	return result;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	CUresult result = enter_device(__func__, device, value);

	if (result)
		return result;
	return *(cuuint64_t *)value ? CUDA_ERROR_INVALID_VALUE : graph_memory_reset(device, attr);
}
