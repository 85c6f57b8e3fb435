/*
 * What graph.c (graphs and their nodes), graph_exec.c (what is made of them to be launched),
 * graph_memory.c (the memory of their allocations) and capture.c share. All of it is under the
 * graphs lock. As on the real driver a handle is trusted until it is destroyed, not longer.
 */
#pragma once

#include "sim.h"

enum {
	OBJECT_GRAPH = 0x68707267,
	OBJECT_NODE = 0x65646f6e,
	OBJECT_EXEC = 0x63657865,
};

/* What one thing that is launched needs of the device's graph memory. */
struct graph_hold {
	CUdevice device;
	uint64_t peak_bytes; /* while it runs */
	uint64_t live_bytes; /* allocations that it left behind */
	CUstream stream;     /* launched in last */
	uint64_t until_ns;   /* it runs until then */
	bool owned;          /* by an exec that can be launched again */
	struct graph_hold *next;
};

/* The address of an allocation node, for as long as a node or an exec knows it or it is live. */
struct graph_space {
	struct space space;
	unsigned references;
	bool live;               /* launched, and not freed by the graph that did that */
	struct graph_hold *hold; /* of who made it live */
};

struct CUgraphNode_st {
	uint32_t kind; /* OBJECT_NODE */
	CUgraph graph;
	CUgraphNode next;
	size_t index; /* in its graph, where no node comes before one that it depends on */
	CUgraphNode *dependencies;
	size_t dependency_count;
	struct graph_work work;
	struct graph_space *space; /* of an allocation, and of what frees one */
	CUmemPoolProps properties; /* an allocation's, as it was asked for */
	bool freed;                /* an allocation that its own graph frees */
	bool frees_other;          /* a free of what another graph allocates */
	CUgraph child;
};

struct CUgraph_st {
	uint32_t kind; /* OBJECT_GRAPH */
	CUgraphNode first, last;
	size_t count;
	bool has_memory;  /* nodes that allocate or free */
	bool embedded;    /* in a node or an exec, which ends it */
	CUgraphExec exec; /* of a graph that has memory nodes: the one that was made of it */
};

void graphs_lock(void);
void graphs_unlock(void);

/* ---- graph.c */

bool graph_valid(CUgraph graph);
/* For a function that answers in out. The graphs lock is the caller's if this succeeds. */
CUresult enter_graph_locked(const char *function, CUgraph graph, const void *out);
CUgraph graph_new_locked(void);
void graph_free_locked(CUgraph graph);
/* A copy, the addresses of allocations included; NULL: no memory. */
CUgraph graph_copy_locked(CUgraph graph);
/* A node that does nothing yet, behind the others. */
CUresult node_add_locked(CUgraph graph, const CUgraphNode *dependencies, size_t count,
			 CUgraphNodeType type, CUgraphNode *ret_node);
/* Takes the last node away again. */
void node_undo_locked(CUgraph graph);
CUresult node_add_alloc_locked(CUgraph graph, const CUgraphNode *dependencies, size_t count,
			       const CUmemPoolProps *properties, size_t bytes,
			       CUgraphNode *ret_node);
CUresult node_add_free_locked(CUgraph graph, const CUgraphNode *dependencies, size_t count,
			      uint64_t address, CUgraphNode *ret_node);
CUresult node_add_child_locked(CUgraph graph, const CUgraphNode *dependencies, size_t count,
			       CUgraph child, CUgraphNode *ret_node);
/* The child becomes the node's. It may allocate what it frees itself. */
CUresult node_move_child_locked(CUgraph graph, const CUgraphNode *dependencies, size_t count,
				CUgraph child, CUgraphNode *ret_node);
/* Which nodes that one comes after: a byte each, by index. NULL: no memory. */
unsigned char *node_ancestors_locked(CUgraphNode node);

/* ---- graph_memory.c */

CUresult graph_space_open_locked(CUdevice device, size_t bytes, struct graph_space **ret_space);
void graph_space_put_locked(struct graph_space *space);
/* The one that begins at the address; NULL if none does. */
struct graph_space *graph_space_find_locked(uint64_t address);
void graph_space_live_locked(struct graph_space *space, struct graph_hold *hold);
/* Gives back a live one; it is in use until then. */
void graph_space_dead_locked(struct graph_space *space, uint64_t until_ns);
/* NULL in *ret_hold if the graph allocates nothing. */
CUresult graph_hold_open_locked(CUgraph graph, struct graph_hold **ret_hold);
void graph_hold_close_locked(struct graph_hold *hold);
/* Reserves what is missing to run it in the stream. */
CUresult graph_hold_reserve_locked(struct graph_hold *hold, CUstream stream);
/* It runs there, until then. */
void graph_hold_run_locked(struct graph_hold *hold, CUstream stream, uint64_t until_ns);

/* ---- graph_exec.c */

CUresult exec_new_locked(CUgraph graph, uint64_t flags, CUgraphExec *ret_exec);
void exec_free_locked(CUgraphExec exec);
bool exec_valid(CUgraphExec exec);
CUresult exec_upload_locked(CUgraphExec exec, CUstream stream);
CUresult exec_launch_locked(CUgraphExec exec, CUstream stream);
CUresult exec_update_locked(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *ret_info);
/* The node of the exec's own that was made of that one, of its graph, is of the same kind. */
CUresult exec_set_work_locked(CUgraphExec exec, CUgraphNode node, const struct graph_work *work);
/* The graph is destroyed, and whatever was made of it goes on. */
void exec_orphan_locked(CUgraphExec exec);
/* The exec's own copy of its graph. */
CUgraph exec_body(CUgraphExec exec);
