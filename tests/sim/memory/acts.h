/*
 * Tests of one process as rows of a table. A row lists calls that the process makes one after the
 * other. Each call is followed by the MiB of data that the process is charged after it, and by the
 * result if that is not CUDA_SUCCESS:
 *
 *     {"retained", .acts = {
 *             {CREATE(A, 64), 64}, {MAP(A, 0, 64), 64}, {RELEASE(A), 64}, {UNMAP(0, 64), 0},
 *             {RELEASE(A), 0, INVALID}}},
 *
 * After each call, the device must hold exactly what is charged. Before the first, the process has
 * a context and nothing else.
 */
#pragma once

#include "cuda_api.h"

#define ACTS_MAX 40

#define CONTEXT_APART (9 * MIB) /* bytes that a context takes and no process's figure has */

/* Short names of results. */
#define INVALID CUDA_ERROR_INVALID_VALUE
#define NO_ROOM CUDA_ERROR_OUT_OF_MEMORY
#define UNKNOWN CUDA_ERROR_UNKNOWN

/* Things that a row names: a call makes one, and later calls use it. NONE is never made. */
enum { A, B, C, D, E, F, NONE, ACT_THINGS };

/* A function of the test program, and what it is called with. The program has a macro for each of
 * its functions, which fills in the members that the function reads. */
struct act_call {
	CUresult (*make)(const struct act_call *call);
	unsigned thing, in;
	uint64_t at, size; /* MiB, if the program does not say otherwise */
};

/* Defines such a function, whose whole work is one call: static ACT(end, cuEnd(it[call->thing]));
 */
#define ACT(name, driver_call)                     \
	CUresult name(const struct act_call *call) \
	{                                          \
		(void)call;                        \
		return driver_call;                \
	}                                          \
	_Static_assert(1, "a function that a row calls")

/* Instead of MiB. */
#define COVERED   UINT64_MAX /* the device holds at most what is charged */
#define UNCHECKED (UINT64_MAX - 1)

struct act {
	struct act_call call; /* the row ends where there is no function */
	uint64_t charged_mib;
	CUresult result;
};

struct acts {
	const char *name;
	const char *limit;  /* of the slice's memory; NULL: 1g */
	const char *faults; /* VGPU_SIM_FAULTS, or NULL */
	unsigned rounds;    /* how often the calls are repeated; 0: once */
	struct act acts[ACTS_MAX];
};

/* Starts CUDA with the row's limit and faults. */
void acts_begin(const struct acts *row);
void acts_take(const struct acts *row);
