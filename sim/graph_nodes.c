/*
 * The driver's functions about nodes that copy and fill, and about the dependencies of a graph.
 */
#include "graph.h"

static CUresult add(const char *function, CUgraph graph, const CUgraphNode *dependencies,
		    size_t count, struct graph_work *work, CUgraphNode *ret_node)
{
	CUgraphNode node;
	CUresult result = enter(function);

	if (result)
		return result;
	if (!ret_node || !work || !graph_valid(graph))
		return CUDA_ERROR_INVALID_VALUE;
	result = transfer_prepare(work);
	if (result)
		return result;
	graphs_lock();
	result = node_add_locked(graph, dependencies, count, work->type, &node);
	if (!result) {
		node->work = *work;
		*ret_node = node;
	}
	graphs_unlock();
	return result;
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			      const CUgraphNode *dependencies, size_t numDependencies,
			      const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	struct graph_work work;

	(void)ctx;
	if (copyParams)
		transfer_describe(copyParams, &work);
	return add(__func__, hGraph, dependencies, numDependencies, copyParams ? &work : NULL,
		   phGraphNode);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			      const CUgraphNode *dependencies, size_t numDependencies,
			      const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	const CUDA_MEMSET_NODE_PARAMS *what = memsetParams;
	struct graph_work work = {.type = CU_GRAPH_NODE_TYPE_MEMSET, .slices = 1};

	(void)ctx;
	if (what && (what->elementSize == 1 || what->elementSize == 2 || what->elementSize == 4) &&
	    !__builtin_mul_overflow(what->width, what->elementSize, &work.bytes)) {
		work.target = (struct transfer_side){
			.address = what->dst, .pitch = what->pitch, .on_device = true};
		work.rows = what->height;
		work.value = what->value;
		work.element_bytes = what->elementSize;
	} else {
		what = NULL;
	}
	return add(__func__, hGraph, dependencies, numDependencies, what ? &work : NULL,
		   phGraphNode);
}

/* Without an array, returns the number of root nodes. With one, fills it; unused entries become
 * NULL. */
CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
	CUresult result = enter_graph_locked(__func__, hGraph, numRootNodes);
	size_t count = 0;

	if (result)
		return result;
	for (CUgraphNode node = hGraph->first; node; node = node->next) {
		if (node->dependency_count)
			continue;
		if (rootNodes && count < *numRootNodes)
			rootNodes[count] = node;
		count++;
	}
	for (size_t i = count; rootNodes && i < *numRootNodes; i++)
		rootNodes[i] = NULL;
	if (!rootNodes || count < *numRootNodes)
		*numRootNodes = count;
	graphs_unlock();
	return CUDA_SUCCESS;
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
	CUresult result = enter_graph_locked(__func__, hGraph, !from == !to ? numEdges : NULL);
	size_t count = 0;

	if (result)
		return result;
	for (CUgraphNode node = hGraph->first; node; node = node->next) {
		for (size_t i = 0; i < node->dependency_count; i++, count++) {
			if (!from || count >= *numEdges)
				continue;
			from[count] = node->dependencies[i];
			to[count] = node;
		}
	}
	if (!from || count < *numEdges)
		*numEdges = count;
	graphs_unlock();
	return CUDA_SUCCESS;
}
