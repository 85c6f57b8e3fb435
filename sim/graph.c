/*
 * Graphs: nodes and their dependencies.
 *
 * A node can only be added after the nodes that it depends on, so a graph's list of nodes is always
 * in an order in which they can be done. As on a real driver, a graph with nodes that allocate or
 * free cannot be copied by the application, cannot be a child, and can have one executable graph at
 * a time. An executable graph has a copy of the graph with the same addresses (graph_exec.c).
 *
 * The graphs lock guards graph.c, graph_exec.c, graph_memory.c and capture.c. The locks of pools,
 * and those after them in the order of sim.h, are taken inside it.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void graphs_lock(void)
{
	pthread_mutex_lock(&lock);
}

void graphs_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

bool graph_valid(CUgraph graph)
{
	return graph && graph->kind == OBJECT_GRAPH;
}

CUgraph graph_new_locked(void)
{
	CUgraph graph = calloc(1, sizeof *graph);

	if (graph)
		graph->kind = OBJECT_GRAPH;
	return graph;
}

static void node_free_locked(CUgraphNode node)
{
	if (node->space)
		graph_space_put_locked(node->space);
	if (node->child)
		graph_free_locked(node->child);
	node->kind = 0;
	free(node->dependencies);
	free(node);
}

void graph_free_locked(CUgraph graph)
{
	while (graph->first) {
		CUgraphNode node = graph->first;

		graph->first = node->next;
		node_free_locked(node);
	}
	if (graph->exec)
		exec_orphan_locked(graph->exec);
	graph->kind = 0;
	free(graph);
}

CUresult node_add_locked(CUgraph graph, const CUgraphNode *dependencies, size_t count,
			 CUgraphNodeType type, CUgraphNode *ret_node)
{
	if (!graph_valid(graph) || (count && !dependencies))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (!dependencies[i] || dependencies[i]->kind != OBJECT_NODE ||
		    dependencies[i]->graph != graph)
			return CUDA_ERROR_INVALID_VALUE;
	}
	CUgraphNode node = calloc(1, sizeof *node);
	CUgraphNode *copy = count ? malloc(count * sizeof(CUgraphNode)) : NULL;
	if (!node || (count && !copy)) {
		free(node);
		free(copy);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (count)
		memcpy(copy, dependencies, count * sizeof(CUgraphNode));
	*node = (struct CUgraphNode_st){
		.kind = OBJECT_NODE,
		.graph = graph,
		.index = graph->count++,
		.dependencies = copy,
		.dependency_count = count,
		.work.type = type,
	};
	if (graph->last)
		graph->last->next = node;
	else
		graph->first = node;
	graph->last = node;
	*ret_node = node;
	return CUDA_SUCCESS;
}

void node_undo_locked(CUgraph graph)
{
	CUgraphNode last = graph->last, *at = &graph->first;

	graph->last = NULL;
	while (*at != last) {
		graph->last = *at;
		at = &(*at)->next;
	}
	*at = NULL;
	graph->count--;
	node_free_locked(last);
}

unsigned char *node_ancestors_locked(CUgraphNode node)
{
	CUgraph graph = node->graph;
	CUgraphNode *nodes = malloc(graph->count * sizeof(CUgraphNode));
	unsigned char *marks = calloc(graph->count, 1);

	if (!nodes || !marks) {
		free(nodes);
		free(marks);
		return NULL;
	}
	for (CUgraphNode other = graph->first; other; other = other->next)
		nodes[other->index] = other;
	marks[node->index] = 1;
	for (size_t i = node->index + 1; i--;) {
		for (size_t k = 0; marks[i] && k < nodes[i]->dependency_count; k++)
			marks[nodes[i]->dependencies[k]->index] = 1;
	}
	free(nodes);
	return marks;
}

CUresult node_add_alloc_locked(CUgraph graph, const CUgraphNode *dependencies, size_t count,
			       const CUmemPoolProps *properties, size_t bytes,
			       CUgraphNode *ret_node)
{
	unsigned gpu;

	if (!graph_valid(graph) || graph->embedded || !bytes ||
	    properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    !device_gpu(properties->location.id, &gpu))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result =
		node_add_locked(graph, dependencies, count, CU_GRAPH_NODE_TYPE_MEM_ALLOC, ret_node);
	if (result)
		return result;
	result = graph_space_open_locked(properties->location.id, bytes, &(*ret_node)->space);
	if (result) {
		node_undo_locked(graph);
		return result;
	}
	(*ret_node)->properties = *properties;
	(*ret_node)->work.bytes = bytes;
	graph->has_memory = true;
	return CUDA_SUCCESS;
}

/* Checks a node that frees. An allocation of the same graph must come before the node, and must
 * have no other node that frees it. An allocation of another graph must not be freed twice in this
 * graph. */
static CUresult free_check_locked(CUgraphNode node, const struct graph_space *space)
{
	CUgraphNode allocation = NULL;

	for (CUgraphNode other = node->graph->first; other; other = other->next) {
		if (other->space != space)
			continue;
		if (other->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
			return CUDA_ERROR_INVALID_VALUE;
		allocation = other;
	}
	node->frees_other = !allocation;
	if (!allocation)
		return CUDA_SUCCESS;
	unsigned char *ancestors = node_ancestors_locked(node);
	if (!ancestors)
		return CUDA_ERROR_OUT_OF_MEMORY;
	bool before = ancestors[allocation->index];
	free(ancestors);
	if (!before)
		return CUDA_ERROR_INVALID_VALUE;
	allocation->freed = true;
	return CUDA_SUCCESS;
}

CUresult node_add_free_locked(CUgraph graph, const CUgraphNode *dependencies, size_t count,
			      uint64_t address, CUgraphNode *ret_node)
{
	struct graph_space *space = graph_space_find_locked(address);

	if (!graph_valid(graph) || graph->embedded || !space)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result =
		node_add_locked(graph, dependencies, count, CU_GRAPH_NODE_TYPE_MEM_FREE, ret_node);
	if (result)
		return result;
	result = free_check_locked(*ret_node, space);
	if (result) {
		node_undo_locked(graph);
		return result;
	}
	(*ret_node)->space = space;
	space->references++;
	graph->has_memory = true;
	return CUDA_SUCCESS;
}

CUresult node_add_child_locked(CUgraph graph, const CUgraphNode *dependencies, size_t count,
			       CUgraph child, CUgraphNode *ret_node)
{
	if (!graph_valid(graph) || !graph_valid(child))
		return CUDA_ERROR_INVALID_VALUE;
	if (child->has_memory)
		return CUDA_ERROR_NOT_SUPPORTED;
	CUgraph copy = graph_copy_locked(child);
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result =
		node_add_locked(graph, dependencies, count, CU_GRAPH_NODE_TYPE_GRAPH, ret_node);
	if (result) {
		graph_free_locked(copy);
		return result;
	}
	copy->embedded = true;
	(*ret_node)->child = copy;
	return CUDA_SUCCESS;
}

/* Whether the graph frees all its allocations, and no others. */
static bool frees_its_own(CUgraph graph)
{
	for (CUgraphNode node = graph->first; node; node = node->next) {
		if (node->frees_other ||
		    (node->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !node->freed))
			return false;
	}
	return true;
}

CUresult node_move_child_locked(CUgraph graph, const CUgraphNode *dependencies, size_t count,
				CUgraph child, CUgraphNode *ret_node)
{
	if (!graph_valid(graph) || !graph_valid(child) || child->embedded || child->exec ||
	    child == graph || !frees_its_own(child))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result =
		node_add_locked(graph, dependencies, count, CU_GRAPH_NODE_TYPE_GRAPH, ret_node);
	if (result)
		return result;
	child->embedded = true;
	graph->has_memory |= child->has_memory;
	(*ret_node)->child = child;
	return CUDA_SUCCESS;
}

/* Copies the work of a node to the node in the same place of a copy of the graph. */
static bool node_copy_locked(CUgraphNode to, const struct CUgraphNode_st *from)
{
	to->work = from->work;
	to->space = from->space;
	to->properties = from->properties;
	to->freed = from->freed;
	to->frees_other = from->frees_other;
	if (to->space)
		to->space->references++;
	if (!from->child)
		return true;
	to->child = graph_copy_locked(from->child);
	if (to->child)
		to->child->embedded = true;
	return to->child != NULL;
}

static bool nodes_copy_locked(CUgraph to, CUgraph from, CUgraphNode *copies)
{
	for (CUgraphNode node = from->first; node; node = node->next) {
		CUgraphNode *copy = &copies[node->index];

		if (node_add_locked(to, NULL, 0, node->work.type, copy) ||
		    !node_copy_locked(*copy, node))
			return false;
		if (!node->dependency_count)
			continue;
		(*copy)->dependencies = malloc(node->dependency_count * sizeof(CUgraphNode));
		if (!(*copy)->dependencies)
			return false;
		(*copy)->dependency_count = node->dependency_count;
		for (size_t i = 0; i < node->dependency_count; i++)
			(*copy)->dependencies[i] = copies[node->dependencies[i]->index];
	}
	return true;
}

CUgraph graph_copy_locked(CUgraph graph)
{
	CUgraph copy = graph_new_locked();
	CUgraphNode *copies = malloc((graph->count + 1) * sizeof(CUgraphNode));
	bool good = copy && copies && nodes_copy_locked(copy, graph, copies);

	free(copies);
	if (good) {
		copy->has_memory = graph->has_memory;
		return copy;
	}
	if (copy)
		graph_free_locked(copy);
	return NULL;
}
