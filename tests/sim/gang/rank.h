/*
 * A rank of a job on several GPUs, over the simulated driver: a kernel of its own and collectives
 * with the others in every step. The program `ranks` has one in each process, in each thread, or
 * all in one thread.
 */
#pragma once

#include "check.h"
#include "cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

#define CU_HOOK(name, class, parameters, arguments) CUresult name parameters;
#define CU_CALL(name, class, parameters)            CUresult name parameters;
#define CU_SIM(name, class, parameters)             CUresult name parameters;
#include "cuda.def"

enum {
	RANKS_MAX = 16,
	COMMS_MAX = 8,
	AHEAD_MAX = 64,
};

/* How the ranks show that they are one job, as NCCL does before its first collective. */
enum sign {
	SIGN_NONE,
	SIGN_PEER,   /* cuCtxEnablePeerAccess between the contexts of one process */
	SIGN_ACCESS, /* cuMemSetAccess on mapped memory of one process for its other devices */
	SIGN_IPC,    /* cuIpcOpenMemHandle of memory on another process's device */
};

struct job {
	unsigned ranks;
	uint64_t work_ns, collective_ns;
	unsigned comms;    /* collectives in a step; more than one have streams of their own */
	unsigned ahead;    /* steps that the host queues before it waits for the first of them */
	bool graph;        /* a step is a graph */
	bool pipeline;     /* a rank receives from the one before and sends to the one after */
	uint64_t stall_ns; /* before one step in four the host sleeps at random, up to that */
	uint64_t late_ns;  /* before one step in fifty the last rank's host sleeps that long */
	enum sign sign;
	double warm_s, seconds;
	uint64_t steps; /* 0: as many as fit in warm_s and seconds */
};

/* What the processes of a job share. */
struct common {
	uint64_t communicator; /* the first of RANKS_MAX * COMMS_MAX numbers */
	unsigned ready;        /* ranks that have come to the next place where all wait */
	CUipcMemHandle handles[RANKS_MAX];
	uint64_t begun[RANKS_MAX]; /* steps that the rank's host has begun to queue */
	uint64_t done[RANKS_MAX];  /* and whose end it has seen */
	uint64_t end;              /* steps in all; UINT64_MAX until that is known */
	/* Of the first rank: when the warm steps were done and how many, and the same of all. */
	uint64_t warm_at_ns, warm_steps, end_at_ns;
};

#define PEEK(word)        __atomic_load_n(&(word), __ATOMIC_SEQ_CST)
#define POKE(word, value) __atomic_store_n(&(word), value, __ATOMIC_SEQ_CST)

struct rank {
	const struct job *job;
	struct common *common;
	unsigned number; /* and its device */
	CUcontext context;
	CUfunction spin, collective;
	CUstream stream, comm_streams[COMMS_MAX];
	CUevent worked, reduced[COMMS_MAX], steps[AHEAD_MAX + 1];
	CUgraphExec graph;
	unsigned random;
};

uint64_t now_ns(void);
void sleep_ns(uint64_t ns);

/* A context on the device, code, streams and events; current in the thread. */
void rank_open(struct rank *rank, const struct job *job, struct common *common, unsigned number);
/* The sign, after rank_open of all ranks of the process. */
void rank_sign(struct rank *ranks, unsigned count);
/* Queues a step; waits for the end of one. */
void rank_begin(struct rank *rank, uint64_t step);
void rank_end(struct rank *rank, uint64_t step);
/* All steps of ranks that one thread has, from when all ranks of the job are here. */
void ranks_run(struct rank *ranks, unsigned count);
