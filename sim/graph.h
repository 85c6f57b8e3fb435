/*
 * Graphs. These files share these declarations: graph.c has graphs and their nodes, graph_exec.c
 * executable graphs, graph_memory.c the memory that their nodes allocate, and capture.c captures.
 * The graphs lock guards all of them. As on the real driver, a handle is trusted until it is
 * destroyed.
 */
#pragma once

#include "sim.h"

enum {
	OBJECT_GRAPH = 0x68707267,
	OBJECT_NODE = 0x65646f6e,
	OBJECT_EXEC = 0x63657865,
};

/* The needs of one executable graph, or of what it left behind, in the device's graph memory. */
struct graph_hold {
	CUdevice device;
	uint64_t peak_bytes; /* needed while it runs */
	uint64_t live_bytes; /* of allocations that it made and did not free */
	CUstream stream;     /* of the last launch */
	uint64_t until_ns;   /* it runs until then */
	bool owned;          /* its executable graph exists, and can be launched again */
	struct graph_hold *next;
};

/* The address of an allocation node. It exists while a node or an executable graph refers to it, or
 * while it is live. */
struct graph_space {
	struct space space;
	unsigned references;
	bool live;               /* allocated by a launch, and not freed yet */
	struct graph_hold *hold; /* of the graph whose launch allocated it */
};

struct CUgraphNode_st {
	uint32_t kind; /* OBJECT_NODE */
	CUgraph graph;
	CUgraphNode next;
	size_t index; /* in its graph, where no node comes before one that it depends on */
	CUgraphNode *dependencies;
	size_t dependency_count;
	struct graph_work work;
	struct graph_space *space; /* of a node that allocates or frees */
	CUmemPoolProps properties; /* of an allocation, as the application gave them */
	bool freed;                /* its own graph frees the allocation */
	bool frees_other;          /* it frees an allocation of another graph */
	CUgraph child;
};

struct CUgraph_st {
	uint32_t kind; /* OBJECT_GRAPH */
	CUgraphNode first, last;
	size_t count;
	bool has_memory;  /* it has nodes that allocate or free */
	bool embedded;    /* it belongs to a node or an executable graph, and ends with it */
	CUgraphExec exec; /* with memory nodes: the executable graph that was made of it */
};

void graphs_lock(void);
void graphs_unlock(void);

/* ---- graph.c */

bool graph_valid(CUgraph graph);
/* For a function with the result parameter `out`. After success, the caller holds the graphs lock.
 */
CUresult enter_graph_locked(const char *function, CUgraph graph, const void *out);
CUgraph graph_new_locked(void);
void graph_free_locked(CUgraph graph);
/* A copy, with the same addresses of allocations; NULL: there is no memory. */
CUgraph graph_copy_locked(CUgraph graph);
/* Adds a node that does nothing yet, after the others. */
CUresult node_add_locked(CUgraph graph, const CUgraphNode *dependencies, size_t count,
			 CUgraphNodeType type, CUgraphNode *ret_node);
/* Removes the node that was added last. */
void node_undo_locked(CUgraph graph);
CUresult node_add_alloc_locked(CUgraph graph, const CUgraphNode *dependencies, size_t count,
			       const CUmemPoolProps *properties, size_t bytes,
			       CUgraphNode *ret_node);
CUresult node_add_free_locked(CUgraph graph, const CUgraphNode *dependencies, size_t count,
			      uint64_t address, CUgraphNode *ret_node);
CUresult node_add_child_locked(CUgraph graph, const CUgraphNode *dependencies, size_t count,
			       CUgraph child, CUgraphNode *ret_node);
/* Adds a node for a child graph, which then belongs to the node. The child may allocate only memory
 * that it frees itself. */
CUresult node_move_child_locked(CUgraph graph, const CUgraphNode *dependencies, size_t count,
				CUgraph child, CUgraphNode *ret_node);
/* The nodes that the node depends on, directly or not: a byte for each node, by index. NULL: there
 * is no memory. */
unsigned char *node_ancestors_locked(CUgraphNode node);

/* ---- graph_memory.c */

CUresult graph_space_open_locked(CUdevice device, size_t bytes, struct graph_space **ret_space);
void graph_space_put_locked(struct graph_space *space);
/* The space that begins at the address, or NULL. */
struct graph_space *graph_space_find_locked(uint64_t address);
void graph_space_live_locked(struct graph_space *space, struct graph_hold *hold);
/* Frees a live space. Its memory is in use until until_ns. */
void graph_space_dead_locked(struct graph_space *space, uint64_t until_ns);
/* Opens the hold of a graph; *ret_hold is NULL if the graph allocates nothing. */
CUresult graph_hold_open_locked(CUgraph graph, struct graph_hold **ret_hold);
void graph_hold_close_locked(struct graph_hold *hold);
/* Reserves the graph memory that is missing for a launch in the stream. */
CUresult graph_hold_reserve_locked(struct graph_hold *hold, CUstream stream);
/* The graph runs in that stream, until until_ns. */
void graph_hold_run_locked(struct graph_hold *hold, CUstream stream, uint64_t until_ns);

/* ---- graph_exec.c */

CUresult exec_new_locked(CUgraph graph, uint64_t flags, CUgraphExec *ret_exec);
void exec_free_locked(CUgraphExec exec);
bool exec_valid(CUgraphExec exec);
CUresult exec_upload_locked(CUgraphExec exec, CUstream stream);
CUresult exec_launch_locked(CUgraphExec exec, CUstream stream);
/* A function of which the GPU has to load the code before the launch, or NULL. */
CUfunction exec_unloaded_locked(CUgraphExec exec, unsigned gpu);
CUresult exec_update_locked(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *ret_info);
/* Changes the work of the executable graph's copy of the node, which must be of the same kind. */
CUresult exec_set_work_locked(CUgraphExec exec, CUgraphNode node, const struct graph_work *work);
/* Gives the executable graph's copy of the node another child graph, with nodes of the same kinds.
 */
CUresult exec_set_child_locked(CUgraphExec exec, CUgraphNode node, CUgraph child);
/* The most local memory that a thread of its kernels needs. */
uint32_t exec_local_bytes_locked(CUgraphExec exec);
/* The graph is destroyed; the executable graph stays. */
void exec_orphan_locked(CUgraphExec exec);
/* The executable graph's own copy of its graph. */
CUgraph exec_body(CUgraphExec exec);
