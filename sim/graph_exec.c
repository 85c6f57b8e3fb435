/*
 * Executable graphs, "exec" for short.
 *
 * An exec has a copy of its graph, and a hold if the graph allocates (graph_memory.c). A launch
 * does the copies and fills at once, and queues one piece of work that lasts as long as all
 * kernels, fills and copies together, because the simulated GPU runs one at a time anyway. If a
 * kernel is a collective, each node is a piece of work of its own, in the order of the nodes. An
 * exec runs once at a time: a launch waits for the launch before, in whatever stream. Under the
 * graphs lock.
 */
#include "graph.h"

#include <stdlib.h>

struct CUgraphExec_st {
	uint32_t kind; /* OBJECT_EXEC */
	CUgraph body;
	CUgraph graph; /* the graph it was made of, if that has memory nodes and still exists */
	struct graph_hold *hold;
	uint64_t flags;
	uint64_t duration_ns;
	bool collects;
	bool loaded; /* the GPU has the code of all its kernels */
	struct when done;
};

enum update_result {
	UPDATE_SUCCESS = 0,
	UPDATE_TOPOLOGY_CHANGED = 2,
	UPDATE_NODE_TYPE_CHANGED = 3,
	UPDATE_PARAMETERS_CHANGED = 5,
	UPDATE_NOT_SUPPORTED = 6,
};

bool exec_valid(CUgraphExec exec)
{
	return exec && exec->kind == OBJECT_EXEC;
}

CUgraph exec_body(CUgraphExec exec)
{
	return exec->body;
}

/* The first function of the graph's kernels whose code the GPU does not have, or NULL. */
static CUfunction unloaded_locked(CUgraph graph, unsigned gpu)
{
	for (CUgraphNode node = graph->first; node; node = node->next) {
		CUfunction function =
			node->child ? unloaded_locked(node->child, gpu) : node->work.function;

		if (function && !function_is_loaded(function, gpu))
			return function;
	}
	return NULL;
}

CUfunction exec_unloaded_locked(CUgraphExec exec, unsigned gpu)
{
	CUfunction function = exec->loaded ? NULL : unloaded_locked(exec->body, gpu);

	exec->loaded = !function;
	return function;
}

void exec_orphan_locked(CUgraphExec exec)
{
	exec->graph = NULL;
}

static uint64_t duration_locked(CUgraph graph)
{
	uint64_t duration_ns = 0;

	for (CUgraphNode node = graph->first; node; node = node->next)
		duration_ns += node->child ? duration_locked(node->child) : node->work.duration_ns;
	return duration_ns;
}

static bool collects_locked(CUgraph graph)
{
	for (CUgraphNode node = graph->first; node; node = node->next) {
		if (node->child ? collects_locked(node->child) : node->work.ranks != 0)
			return true;
	}
	return false;
}

void exec_free_locked(CUgraphExec exec)
{
	when_set(&exec->done, 0);
	if (exec->hold)
		graph_hold_close_locked(exec->hold);
	if (exec->graph)
		exec->graph->exec = NULL;
	if (exec->body)
		graph_free_locked(exec->body);
	exec->kind = 0;
	free(exec);
}

CUresult exec_new_locked(CUgraph graph, uint64_t flags, CUgraphExec *ret_exec)
{
	if (graph->exec)
		return CUDA_ERROR_NOT_SUPPORTED;
	CUgraphExec exec = calloc(1, sizeof *exec);
	if (!exec)
		return CUDA_ERROR_OUT_OF_MEMORY;
	exec->kind = OBJECT_EXEC;
	exec->flags = flags;
	exec->body = graph_copy_locked(graph);
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	if (exec->body)
		result = graph_hold_open_locked(exec->body, &exec->hold);
	if (result) {
		exec_free_locked(exec);
		return result;
	}
	exec->body->embedded = true;
	exec->duration_ns = duration_locked(exec->body);
	exec->collects = collects_locked(exec->body);
	if (graph->has_memory) {
		exec->graph = graph;
		graph->exec = exec;
	}
	*ret_exec = exec;
	return CUDA_SUCCESS;
}

CUresult exec_upload_locked(CUgraphExec exec, CUstream stream)
{
	return exec->hold ? graph_hold_reserve_locked(exec->hold, stream) : CUDA_SUCCESS;
}

/* Whether the node is an allocation that its own graph does not free. */
static bool is_left(const struct CUgraphNode_st *node)
{
	return node->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !node->freed;
}

/* Checks that the graph's own allocations are not live, and that those of other graphs that it
 * frees are. */
static CUresult launch_check_locked(CUgraphExec exec)
{
	bool frees = exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;

	for (CUgraphNode node = exec->body->first; node; node = node->next) {
		if (is_left(node) && node->space->live && !frees)
			return CUDA_ERROR_INVALID_VALUE;
		if (node->frees_other && !node->space->live)
			return CUDA_ERROR_INVALID_VALUE;
	}
	for (CUgraphNode node = exec->body->first; node; node = node->next) {
		if (is_left(node) && node->space->live)
			graph_space_dead_locked(node->space, 0);
	}
	return CUDA_SUCCESS;
}

static CUresult transfers_do_locked(CUgraph graph)
{
	CUresult result = CUDA_SUCCESS;

	for (CUgraphNode node = graph->first; node && !result; node = node->next) {
		if (node->child)
			result = transfers_do_locked(node->child);
		else if (node->work.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
			 node->work.type == CU_GRAPH_NODE_TYPE_MEMSET)
			result = transfer_do(&node->work);
	}
	return result ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

static CUresult nodes_queue_locked(CUgraph graph, CUstream stream)
{
	CUresult result = CUDA_SUCCESS;

	for (CUgraphNode node = graph->first; node && !result; node = node->next) {
		if (node->child)
			result = nodes_queue_locked(node->child, stream);
		else if (node->work.ranks)
			result = backlog_work(stream, &node->work);
		else if (node->work.duration_ns)
			stream_launch(stream, node->work.duration_ns);
	}
	return result;
}

CUresult exec_launch_locked(CUgraphExec exec, CUstream stream)
{
	CUresult result = launch_check_locked(exec);

	if (!result)
		result = exec_upload_locked(exec, stream);
	if (!result)
		result = transfers_do_locked(exec->body);
	if (result)
		return result;
	stream_after(stream, &exec->done);
	if (exec->collects)
		result = nodes_queue_locked(exec->body, stream);
	else
		stream_launch(stream, exec->duration_ns);
	stream_end(stream, &exec->done);
	uint64_t done_ns = when_at(&exec->done);
	if (done_ns == TIME_UNKNOWN)
		done_ns = timeline_now(); /* the memory counts as used until then */
	if (exec->hold)
		graph_hold_run_locked(exec->hold, stream, done_ns);
	for (CUgraphNode node = exec->body->first; node; node = node->next) {
		if (is_left(node))
			graph_space_live_locked(node->space, exec->hold);
		else if (node->frees_other)
			graph_space_dead_locked(node->space, done_ns);
	}
	return result;
}

static bool same_dependencies(const struct CUgraphNode_st *a, const struct CUgraphNode_st *b)
{
	if (a->dependency_count != b->dependency_count)
		return false;
	for (size_t i = 0; i < a->dependency_count; i++) {
		if (a->dependencies[i]->index != b->dependencies[i]->index)
			return false;
	}
	return true;
}

static enum update_result compare_locked(CUgraph body, CUgraph graph,
					 CUgraphExecUpdateResultInfo *ret_info)
{
	CUgraphNode old = body->first, new = graph->first;

	if (body->count != graph->count)
		return UPDATE_TOPOLOGY_CHANGED;
	for (; old; old = old->next, new = new->next) {
		enum update_result difference = UPDATE_SUCCESS;

		if (old->work.type != new->work.type)
			difference = UPDATE_NODE_TYPE_CHANGED;
		else if (!same_dependencies(old, new))
			difference = UPDATE_TOPOLOGY_CHANGED;
		else if (old->space != new->space)
			difference = UPDATE_PARAMETERS_CHANGED;
		if (difference)
			ret_info->errorNode = new;
		else if (old->child)
			difference = compare_locked(old->child, new->child, ret_info);
		if (difference)
			return difference;
	}
	return UPDATE_SUCCESS;
}

static void work_copy_locked(CUgraph body, CUgraph graph)
{
	CUgraphNode old = body->first, new = graph->first;

	for (; old; old = old->next, new = new->next) {
		old->work = new->work;
		if (old->child)
			work_copy_locked(old->child, new->child);
	}
}

CUresult exec_update_locked(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *ret_info)
{
	*ret_info = (CUgraphExecUpdateResultInfo){0};
	if (graph->exec && graph->exec != exec)
		ret_info->result = UPDATE_NOT_SUPPORTED;
	else
		ret_info->result = compare_locked(exec->body, graph, ret_info);
	if (ret_info->result)
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	work_copy_locked(exec->body, graph);
	exec->loaded = false;
	exec->duration_ns = duration_locked(exec->body);
	exec->collects = collects_locked(exec->body);
	return CUDA_SUCCESS;
}

static CUgraphNode own_node(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type)
{
	CUgraphNode own = exec->body->first;

	while (own && own->index != node->index)
		own = own->next;
	return own && own->work.type == type ? own : NULL;
}

static void changed(CUgraphExec exec)
{
	exec->loaded = false;
	exec->duration_ns = duration_locked(exec->body);
}

CUresult exec_set_work_locked(CUgraphExec exec, CUgraphNode node, const struct graph_work *work)
{
	CUgraphNode own = own_node(exec, node, work->type);

	if (!own)
		return CUDA_ERROR_INVALID_VALUE;
	own->work = *work;
	changed(exec);
	return CUDA_SUCCESS;
}

CUresult exec_set_child_locked(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
	CUgraphNode own = own_node(exec, node, CU_GRAPH_NODE_TYPE_GRAPH);
	CUgraphExecUpdateResultInfo info;

	if (!own || compare_locked(own->child, child, &info))
		return CUDA_ERROR_INVALID_VALUE;
	work_copy_locked(own->child, child);
	changed(exec);
	return CUDA_SUCCESS;
}

static uint32_t local_bytes_locked(CUgraph graph)
{
	uint32_t most = 0;

	for (CUgraphNode node = graph->first; node; node = node->next) {
		uint32_t bytes = node->child           ? local_bytes_locked(node->child)
				 : node->work.function ? function_local_bytes(node->work.function)
						       : 0;

		most = bytes > most ? bytes : most;
	}
	return most;
}

uint32_t exec_local_bytes_locked(CUgraphExec exec)
{
	return local_bytes_locked(exec->body);
}
