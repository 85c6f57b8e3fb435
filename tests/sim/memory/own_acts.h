/*
 * Tests of memory that the driver takes for itself, as rows of a table. A row lists calls (acts.h)
 * that the process makes one after the other. Each call is followed by the MiB that the process is
 * charged after it, first of the driver's own memory, then of data; and by the result if that is
 * not CUDA_SUCCESS:
 *
 *     {"freed_after_load", "1g", .acts = {
 *             {TAKE(A, 30), 0, 30}, {LOAD(B, 1), 20, 30}, {GIVE(A), 20, 0}, {RESET, ENDED}}},
 *     TEST_TABLE(rows, own_play)
 *
 * After each call, NVML's figure of the process must be exactly what is charged.
 */
#pragma once

#include "acts.h"
#include "own_fixture.h"

/* Instead of MiB, as COVERED and UNCHECKED: nothing is charged, as the context has ended. */
#define ENDED (UINT64_MAX - 2)

struct own_act {
	struct act_call call; /* the row ends where there is no function */
	uint64_t own_mib, data_mib;
	CUresult result;
};

struct own_row {
	const char *name;
	const char *limit;    /* of the slice's memory */
	const char *faults;   /* VGPU_SIM_FAULTS, or NULL */
	bool without_context; /* the row begins without one; otherwise in the primary context */
	unsigned rounds;      /* how often the calls are repeated; 0: once */
	struct own_act acts[ACTS_MAX];
};

void own_play(const struct own_row *row);

CUresult own_take(const struct act_call *call);
CUresult own_give(const struct act_call *call);
CUresult own_leave(const struct act_call *call);
CUresult own_rest(const struct act_call *call);
CUresult own_load(const struct act_call *call);
CUresult own_unload(const struct act_call *call);
CUresult own_set_stack(const struct act_call *call);
CUresult own_reset(const struct act_call *call);
CUresult own_release(const struct act_call *call);
CUresult own_enter_primary(const struct act_call *call);
CUresult own_leave_context(const struct act_call *call);

/* clang-format off */
#define TAKE(thing, mib)     {own_take, thing, NONE, 0, mib}
#define GIVE(thing)          {own_give, thing, NONE, 0, 0}
#define LEAVE(thing, mib)    {own_leave, thing, NONE, 0, mib} /* takes all but that */
#define REST                 {own_rest, NONE, NONE, 0, 0}
#define LOAD(thing, loader)  {own_load, thing, NONE, loader, 0}
#define LOAD_NEXT(thing, n)  {own_load, thing, NONE, n, 1} /* by the n-th loader after the round's */
#define UNLOAD(thing)        {own_unload, thing, NONE, 0, 0}
#define SET_STACK(bytes)     {own_set_stack, NONE, NONE, 0, bytes}
#define RESET                {own_reset, NONE, NONE, 0, 0}
#define RELEASE              {own_release, NONE, NONE, 0, 0} /* of the primary context */
#define ENTER_PRIMARY        {own_enter_primary, NONE, NONE, 0, 0}
#define LEAVE_CONTEXT        {own_leave_context, NONE, NONE, 0, 0}
/* clang-format on */
