/*
 * Shared by the tests of pools and graphs: pools, and rows of calls (acts.h). The calls use one
 * stream that does not wait for the default one. Their sizes are in MiB.
 */
#pragma once

#include "acts.h"
#include "stream_api.h"

extern CUstream stream;
extern CUmemoryPool standard; /* the device's default pool */

/* Starts CUDA with that limit, and makes the stream. */
void start(const char *limit);

/* These check that the driver succeeds. */
CUmemoryPool pool_on(CUmemAllocationType type, unsigned location, int device);
CUmemoryPool device_pool(void);
CUdeviceptr take_from(CUmemoryPool pool, uint64_t bytes);
void threshold_set(CUmemoryPool pool, uint64_t bytes); /* the pool's release threshold */

/* -- rows of calls ---------------------------------------------------------------------------- */

/* The pools that a row names. STANDARD is the default pool. */
enum { P, Q, R, STANDARD, POOLS };
extern CUmemoryPool pools[POOLS];

void play(const struct acts *row);

CUresult take_linear(const struct act_call *call);
CUresult give_linear(const struct act_call *call);
CUresult take_in_stream(const struct act_call *call);
CUresult give_in_stream(const struct act_call *call);
CUresult wait_for_stream(const struct act_call *call);
CUresult look(const struct act_call *call);
CUresult make_pool(const struct act_call *call);
CUresult destroy_pool(const struct act_call *call);
CUresult take_in_pool(const struct act_call *call);
CUresult trim_pool(const struct act_call *call);
CUresult keep_in_pool(const struct act_call *call);

/* clang-format off */
#define TAKE(thing, mib)            {take_linear, thing, NONE, 0, mib}
#define GIVE(thing)                 {give_linear, thing, NONE, 0, 0}
#define TAKE_ASYNC(thing, mib)      {take_in_stream, thing, NONE, 0, mib}
#define GIVE_ASYNC(thing)           {give_in_stream, thing, NONE, 0, 0}
#define SYNCHRONISE                 {wait_for_stream, NONE, NONE, 0, 0}
#define LOOK                        {look, NONE, NONE, 0, 0} /* compares the ledger with NVML */
#define MAKE_POOL(pool)             {make_pool, NONE, pool, 0, 0}
#define DESTROY_POOL(pool)          {destroy_pool, NONE, pool, 0, 0}
#define TAKE_FROM(pool, thing, mib) {take_in_pool, thing, pool, 0, mib}
#define TRIM_POOL(pool, mib)        {trim_pool, NONE, pool, 0, mib}
#define KEEP(pool, mib)             {keep_in_pool, NONE, pool, 0, mib} /* its release threshold */
/* clang-format on */
