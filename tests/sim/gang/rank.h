/*
 * A rank of a job on several GPUs of the simulated driver. Each step has a kernel of the rank,
 * and collectives with the other ranks. The program `ranks` has one rank in each process, one
 * in each thread, or all in one thread.
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

/* The sign by which the ranks show that they are one job, as NCCL does before its first
 * collective. */
enum sign {
	SIGN_NONE,
	SIGN_PEER,   /* cuCtxEnablePeerAccess between the contexts of one process */
	SIGN_ACCESS, /* cuMemSetAccess on mapped memory of one process for its other devices */
	SIGN_IPC,    /* cuIpcOpenMemHandle of memory on another process's device */
};

struct job {
	unsigned ranks;
	uint64_t work_ns, collective_ns;
	/* collectives in a step; if there are several, each has a stream of its own */
	unsigned comms;
	unsigned ahead;    /* steps that the host queues before it waits for the first of them */
	bool batch;        /* it waits for all of them, and then queues the next ones */
	bool graph;        /* a step is a graph */
	bool pipeline;     /* a rank receives from the one before and sends to the one after */
	uint64_t stall_ns; /* before one step in four, the host sleeps at random, up to this */
	uint64_t late_ns;  /* before one step in fifty, the last rank's host sleeps that long */
	enum sign sign;
	double warm_s, seconds;
	uint64_t steps; /* 0: as many as fit in warm_s and seconds */
};

/* The state that the processes of a job share. */
struct common {
	uint64_t communicator; /* the first of RANKS_MAX * COMMS_MAX numbers */
	unsigned ready;        /* ranks that have reached the next barrier */
	CUipcMemHandle handles[RANKS_MAX];
	uint64_t begun[RANKS_MAX]; /* steps that the rank's host has begun to queue */
	uint64_t done[RANKS_MAX];  /* steps whose end the rank's host has seen */
	uint64_t end;              /* number of steps; UINT64_MAX: not known yet */
	/* Of the first rank: the end of the warm-up, its steps, and the end of all steps. */
	uint64_t warm_at_ns, warm_steps, end_at_ns;
};

#define PEEK(word)        __atomic_load_n(&(word), __ATOMIC_SEQ_CST)
#define POKE(word, value) __atomic_store_n(&(word), value, __ATOMIC_SEQ_CST)

struct rank {
	const struct job *job;
	struct common *common;
	unsigned number; /* of the rank and its device */
	CUcontext context;
	CUfunction spin, collective;
	CUstream stream, comm_streams[COMMS_MAX];
	CUevent worked, reduced[COMMS_MAX], steps[AHEAD_MAX + 1];
	CUgraphExec graph;
	unsigned random;
};

uint64_t now_ns(void);
void sleep_ns(uint64_t ns);

/* Makes a context on the device, current in this thread, and code, streams and events. */
void rank_open(struct rank *rank, const struct job *job, struct common *common, unsigned number);
/* Shows the job's sign. Call it after rank_open of all ranks of the process. */
void rank_sign(struct rank *ranks, unsigned count);
/* rank_begin queues a step, and rank_end waits for its end. */
void rank_begin(struct rank *rank, uint64_t step);
void rank_end(struct rank *rank, uint64_t step);
/* Runs all steps of the ranks of one thread, after all ranks of the job have arrived. */
void ranks_run(struct rank *ranks, unsigned count);
