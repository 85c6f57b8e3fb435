/* Stream-ordered memory pools and graph memory, towards the other hooks. */
#pragma once

#include <stdbool.h>

#include "cuda_abi.h"
#include "pool.h"

/* Graph memory of a device, among the pools: no pool's handle is that low. */
#define GRAPH_POOL(device) ((uint64_t)(device) + 1)

/* Reads the figures of all pools of a device (-1: any) and has them charged. True: some charge
 * changed. Nothing is asked of the driver where there are no pools. */
bool pools_correct(CUdevice device);
bool pool_correct(uint64_t pool);
bool pool_read(uint64_t pool, struct pool_figure *ret_figure); /* one's, for quota_pool_… */

/* Has the pools of the device give back to it what they keep for later. True: there was something.
 */
bool pools_give_back(CUdevice device);

/* Whether all of an allocation of size_bytes would fit into memory that the pool has and does not
 * use. */
bool pool_has_free(uint64_t pool, uint64_t size_bytes);

/* Before it is destroyed: has it give back what it can. Whether it holds nothing any more. */
bool pool_empty(uint64_t pool);

/* When quota_pool_reserve says -EAGAIN: quota_pool_grow, with room made before it is refused. */
int pool_grow(uint64_t pool, uint64_t size_bytes, struct pool_claim *claim);

/* Before the driver destroys a pool that is on the list no more. */
void pools_wait_for_lookers(void);

/* The stream that a per-thread function means, as any function takes it. */
static inline CUstream per_thread_stream(CUstream stream)
{
	return stream ? stream : (CUstream)2; /* CU_STREAM_PER_THREAD */
}

/* Brackets of questions that would otherwise end a stream capture. */
CUstreamCaptureMode relaxed_begin(void);
void relaxed_end(CUstreamCaptureMode mode);

/* Something of a pool may have been freed: the next synchronisations look at its figure. */
void pools_note_free(void);

/* A stream, event or context was synchronised: there pools give back what exceeds their release
 * threshold. */
void pools_synchronised(void);

void pools_forget(void); /* in a forked child */
void async_alloc_forget(void);

/* async_free.c: what streams had yet to free goes with the context; and in a forked child. */
void async_free_end_context(CUcontext context);
/* NVML counts so many bytes less than the books: some of that may have been freed. Whether it was.
 */
bool async_free_found_gone(CUdevice device, uint64_t bytes);
void async_free_forget(void);

/* graph.c: has the device's graph memory given back; and in a forked child. */
CUresult graphs_trim(CUdevice device);
void graphs_forget(void);
