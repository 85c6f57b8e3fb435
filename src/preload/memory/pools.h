/* Stream-ordered memory pools and graph memory, for the other hooks. */
#pragma once

#include <stdbool.h>

#include "cuda_abi.h"
#include "pool.h"

/* The number of a device's graph memory among the pools. No pool's handle is that low. */
#define GRAPH_POOL(device) ((uint64_t)(device) + 1)

/* Reads the figures of all pools of a device (-1: of all devices) and charges them. True: a charge
 * has changed. The driver is not called if there are no pools. */
bool pools_correct(CUdevice device);
bool pool_correct(uint64_t pool); /* as pools_correct, for one pool */
/* Reads the figures of one pool, as the functions quota_pool_… need them. */
bool pool_read(uint64_t pool, struct pool_figure *ret_figure);

/* Has the pools give memory back to the device that they keep for later. True: there was some. */
bool pools_give_back(CUdevice device);

/* Whether an allocation of size_bytes would fit into memory that the pool has and does not use. */
bool pool_has_free(uint64_t pool, uint64_t size_bytes);

/* How much memory of the device the pool has, used or not. False: the driver does not tell. */
bool pool_reserved(uint64_t pool, uint64_t *ret_bytes);

/* Whether the driver may let any stream use what is free, by making it wait for the free. It may,
 * unless the application has forbidden it. */
bool pool_streams_wait(uint64_t pool);

/* Before the pool is destroyed: has it give back what it can. Returns whether it has nothing left.
 */
bool pool_empty(uint64_t pool);

/* quota_pool_reserve. It waits while another thread resets the pool's figure, for 0.2 s at most. */
int pool_reserve(uint64_t pool, uint64_t size_bytes, struct pool_reservation *ret_reservation);

/* The application is about to reset the highest size of a pool (quota_pool_reset_begin). False: the
 * pool is not charged by that figure. True: quota_pool_reset_end follows the driver's call. */
bool pool_reset_begin(uint64_t pool);

/* When quota_pool_reserve returns -EAGAIN: quota_pool_grow, which tries to make room before it
 * refuses. -ENOENT: nothing is charged, as the driver does not say what the pool reserves, and
 * NVML's figure leaves room. */
int pool_grow(uint64_t pool, uint64_t size_bytes, struct pool_reservation *reservation);

/* Before the driver destroys a pool that was taken off the list: waits until no thread asks about
 * pools whose handles it took from the list. */
void pools_wait_for_lookers(void);

/* The stream of a function with the suffix _ptsz, as functions without the suffix take it. */
static inline CUstream per_thread_stream(CUstream stream)
{
	return stream ? stream : (CUstream)2; /* CU_STREAM_PER_THREAD */
}

/* The thread's mode of captures is relaxed between the two, so a query does not invalidate a
 * capture that another thread makes. */
CUstreamCaptureMode relaxed_begin(void);
void relaxed_end(CUstreamCaptureMode mode);

/* Memory of a pool may have been freed: the next synchronisations read the pools' figures. */
void pools_note_free(void);

/* A stream, event or context was synchronised. The driver's pools give back memory above their
 * release thresholds then. */
void pools_synchronised(void);

void pools_forked(void); /* in a forked child */
void async_alloc_forked(void);

/* async_free.c: memory of a pool was freed in the stream. When the stream is synchronised, the
 * pools' figures are read. */
void async_free_note(CUstream stream);
/* async_free.c: memory that streams have yet to free is freed with the context. */
void async_free_end_context(CUcontext context);
/* The stream is about to be destroyed. The driver may give its handle to another stream while its
 * work goes on. */
void async_free_end_stream(CUstream stream);
/* async_free.c: NVML counts `bytes` less than the accounts. Whether memory that streams had yet to
 * free explains some of them, and has been refunded. */
bool async_free_found_gone(CUdevice device, uint64_t bytes);
void async_free_forked(void); /* in a forked child */

/* graph.c: has the driver give back the device's graph memory. */
CUresult graphs_trim(CUdevice device);
void graphs_forked(void); /* in a forked child */
