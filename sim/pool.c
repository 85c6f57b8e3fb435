/*
 * Stream-ordered memory: pools, what they hand out, and when they give memory back to the GPU.
 *
 * A pool reserves device memory in chunks of 32 MiB. As on a real driver, free memory of a pool can
 * be mapped to any address, so a pool does not fragment, and sums are enough to describe it. Every
 * piece that is handed out is a space of its own (memory.c), mapped as long as it lives. The sums,
 * in bytes:
 *
 *   used      in pieces that live
 *   freed     in pieces that were freed in stream order, until that stream is synchronised. New
 *             pieces may use that memory: at once if that needs no waiting, otherwise after the
 *             new piece's stream has waited
 *   reserved  at least used + freed, in whole chunks. It grows when a piece finds no room. At a
 *             synchronisation or a trim it shrinks to used + freed and the memory that is kept
 *   held      taken from the GPU for the pool: reserved; for memory of the host 0, and for managed
 *             memory the most that was ever reserved (measured on a real driver)
 *
 * A pool belongs to a device, not to a context, and stays when contexts end. A destroyed pool is
 * invalid at once, and is freed with its last piece.
 *
 * Memory that is not from a pool can be freed in stream order, too, unless it is managed. Until the
 * free happens, it is in a list of its own (struct late).
 *
 * One lock guards pool.c, pool_list.c and pool_share.c. The locks of memory.c and of the shared
 * state are taken inside it.
 */
#include "pool.h"

#include <stdlib.h>

struct late {
	uint64_t address;
	struct moment freed;
	struct late *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct late *lates; /* lock */

CUmemoryPool pools;

void pools_lock(void)
{
	pthread_mutex_lock(&lock);
}

void pools_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

uint64_t chunks_round(uint64_t bytes)
{
	const uint64_t chunk = CHUNK_BYTES;

	return bytes > UINT64_MAX - chunk ? bytes : (bytes + chunk - 1) / chunk * chunk;
}

static bool moment_passed(const struct moment *moment, CUcontext context, CUstream stream,
			  uint64_t until_ns)
{
	if (moment->context && (moment->context != context || (stream && moment->stream != stream)))
		return false;
	return moment->ready_ns <= until_ns;
}

bool pool_known_locked(CUmemoryPool pool)
{
	for (CUmemoryPool other = pools; other; other = other->next) {
		if (other == pool)
			return !pool->destroyed;
	}
	return false;
}

/* Takes memory from the GPU or gives it back, so that the pool holds `bytes`. */
static CUresult hold_locked(CUmemoryPool pool, uint64_t bytes)
{
	bool more = bytes > pool->held_bytes;
	uint64_t change = more ? bytes - pool->held_bytes : pool->held_bytes - bytes;
	struct machine_holding holding = {0};

	if (pool->kind == BLOCK_SPACE_HOST || !change)
		return CUDA_SUCCESS;
	if (pool->exported) {
		if (machine_resize(pool->exported, bytes))
			return CUDA_ERROR_OUT_OF_MEMORY; /* or another process has a part of it */
		pool->held_bytes = bytes;
		return CUDA_SUCCESS;
	}
	if (pool->kind == BLOCK_SPACE_MANAGED)
		holding.managed_bytes = change;
	else
		holding.memory_bytes = change;
	if (more && machine_take(pool->gpu, &holding))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!more)
		machine_give(pool->gpu, &holding);
	pool->held_bytes = bytes;
	return CUDA_SUCCESS;
}

static CUresult reserve_locked(CUmemoryPool pool, uint64_t bytes)
{
	CUresult result = CUDA_SUCCESS;

	if (pool->kind != BLOCK_SPACE_MANAGED || bytes > pool->held_bytes)
		result = hold_locked(pool, bytes);
	if (result)
		return result;
	pool->reserved_bytes = bytes;
	if (bytes > pool->reserved_high_bytes)
		pool->reserved_high_bytes = bytes;
	return CUDA_SUCCESS;
}

void pool_forget_locked(CUmemoryPool pool)
{
	CUmemoryPool *at = &pools;

	while (*at != pool)
		at = &(*at)->next;
	*at = pool->next;
	hold_locked(pool, 0);
	if (pool->exported)
		machine_leave(pool->exported);
	free(pool);
}

void pool_shrink_locked(CUmemoryPool pool, uint64_t keep_bytes)
{
	uint64_t needed = pool->used_bytes + pool->freed_bytes;

	SIM_ASSERT(pool->imported || pool->reserved_bytes >= needed);
	if (pool->destroyed && !needed) {
		pool_forget_locked(pool);
		return;
	}
	if (needed < keep_bytes && !pool->destroyed)
		needed = keep_bytes;
	needed = chunks_round(needed);
	if (needed < pool->reserved_bytes)
		reserve_locked(pool, needed);
}

/* Frees in the stream up to that time are complete: their memory need not be kept. */
static void collect_locked(CUmemoryPool pool, CUcontext context, CUstream stream, uint64_t until_ns)
{
	for (struct piece **at = &pool->freed; *at;) {
		struct piece *piece = *at;

		if (!moment_passed(&piece->freed, context, stream, until_ns)) {
			at = &piece->next;
			continue;
		}
		*at = piece->next;
		SIM_ASSERT(pool->freed_bytes >= piece->space.bytes);
		pool->freed_bytes -= piece->space.bytes;
		if (pool->imported)
			machine_leave(pool->imported);
		free(piece);
	}
}

void pool_collect_locked(CUmemoryPool pool)
{
	uint64_t now = timeline_now();

	for (struct piece *piece = pool->freed; piece; piece = piece->next) {
		if (piece->freed.ready_ns <= now)
			piece->freed = (struct moment){0};
	}
	collect_locked(pool, NULL, NULL, 0);
}

/* The rank of the piece for reuse by the stream: 0 is best; 3: it cannot be reused. */
static unsigned reluctance(const struct CUmemPoolHandle_st *pool, const struct piece *piece,
			   CUstream stream, uint64_t now)
{
	if (!piece->freed.context || piece->freed.stream == stream)
		return 0;
	if (piece->freed.ready_ns <= now && pool->reuse[REUSE_DONE])
		return 1;
	return pool->reuse[REUSE_WAITING] ? 2 : 3;
}

/* Reuses `bytes` of freed pieces. Returns the time at which the last of them is free. */
static uint64_t reuse_locked(CUmemoryPool pool, uint64_t bytes, CUstream stream, uint64_t now)
{
	uint64_t ready_ns = 0;

	for (unsigned round = 0; round < 3 && bytes; round++) {
		for (struct piece **at = &pool->freed; *at && bytes;) {
			struct piece *piece = *at;
			uint64_t part = piece->space.bytes < bytes ? piece->space.bytes : bytes;

			if (reluctance(pool, piece, stream, now) != round) {
				at = &piece->next;
				continue;
			}
			if (piece->freed.ready_ns > ready_ns)
				ready_ns = piece->freed.ready_ns;
			SIM_ASSERT(pool->freed_bytes >= part);
			bytes -= part;
			pool->freed_bytes -= part;
			piece->space.bytes -= part;
			if (piece->space.bytes)
				continue;
			*at = piece->next;
			free(piece);
		}
	}
	return ready_ns;
}

/* Makes room for `bytes` more. *ret_ready_ns: the time from which it may be
 * used. */
static CUresult room_locked(CUmemoryPool pool, uint64_t bytes, CUstream stream,
			    uint64_t *ret_ready_ns)
{
	uint64_t now = timeline_now(), needed = pool->used_bytes + bytes;
	uint64_t most = pool->properties.maxSize;
	CUresult result = CUDA_SUCCESS;

	for (struct piece *piece = pool->freed; piece; piece = piece->next)
		needed += reluctance(pool, piece, stream, now) == 3 ? piece->space.bytes : 0;
	needed = chunks_round(needed);
	if (most && needed > chunks_round(most))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (needed > pool->reserved_bytes)
		result = reserve_locked(pool, needed);
	if (result)
		return result;
	needed = pool->used_bytes + pool->freed_bytes + bytes;
	*ret_ready_ns = 0;
	if (needed > pool->reserved_bytes)
		*ret_ready_ns = reuse_locked(pool, needed - pool->reserved_bytes, stream, now);
	return CUDA_SUCCESS;
}

static CUresult take_locked(CUmemoryPool pool, struct piece *piece, CUstream stream)
{
	uint64_t ready_ns;

	if (!pool_known_locked(pool) || pool->imported)
		return CUDA_ERROR_INVALID_VALUE;
	piece->space.pool = pool;
	piece->space.device = pool->kind == BLOCK_SPACE_HOST ? stream->context->device
							     : pool->properties.location.id;
	CUresult result = room_locked(pool, piece->space.bytes, stream, &ready_ns);
	if (!result)
		result = memory_space_open(&piece->space, pool->kind);
	if (result)
		return result;
	stream_mark(stream, ready_ns);
	pool->used_bytes += piece->space.bytes;
	if (pool->used_bytes > pool->used_high_bytes)
		pool->used_high_bytes = pool->used_bytes;
	return CUDA_SUCCESS;
}

CUresult pool_take(CUmemoryPool pool, size_t bytes, CUstream stream, uint64_t *ret_address)
{
	const size_t most = (size_t)1 << 48; /* more than any GPU has; sums do not overflow */

	if (bytes > most)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct piece *piece = calloc(1, sizeof *piece);
	if (!piece)
		return CUDA_ERROR_OUT_OF_MEMORY;
	piece->space.bytes = (bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
	pthread_mutex_lock(&lock);
	CUresult result = take_locked(pool, piece, stream);
	if (!result)
		*ret_address = piece->space.address;
	pthread_mutex_unlock(&lock);
	if (result)
		free(piece);
	return result;
}

static bool late_locked(uint64_t address)
{
	for (struct late *late = lates; late; late = late->next) {
		if (late->address == address)
			return true;
	}
	return false;
}

static CUresult late_add_locked(const struct memory_range *range, CUstream stream)
{
	if (late_locked(range->address) || !atomic_load(&range->context->alive))
		return CUDA_ERROR_INVALID_VALUE;
	struct late *late = malloc(sizeof *late);
	if (!late)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*late = (struct late){
		.address = range->address,
		.freed = {stream->context, stream, stream_mark(stream, 0)},
		.next = lates,
	};
	lates = late;
	return CUDA_SUCCESS;
}

static void piece_free_locked(struct piece *piece, CUstream stream)
{
	CUmemoryPool pool = piece->space.pool;

	memory_space_close(&piece->space);
	piece->freed = (struct moment){stream->context, stream, stream_mark(stream, 0)};
	piece->next = pool->freed;
	pool->freed = piece;
	SIM_ASSERT(pool->used_bytes >= piece->space.bytes);
	pool->used_bytes -= piece->space.bytes;
	pool->freed_bytes += piece->space.bytes;
}

CUresult pool_give_async(uint64_t address, CUstream stream)
{
	struct memory_range range;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&lock);
	if (memory_find(address, &range) && range.address == address) {
		if (range.kind == BLOCK_MANAGED && !range.pool)
			result = CUDA_ERROR_NOT_SUPPORTED; /* so on an H100 with driver 580 */
		else if (range.context)
			result = late_add_locked(&range, stream);
		if (range.pool) {
			piece_free_locked((struct piece *)range.space, stream);
			result = CUDA_SUCCESS;
		}
	}
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult pool_give(uint64_t address)
{
	struct memory_range range;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&lock);
	if (memory_find(address, &range) && range.address == address && range.pool) {
		SIM_ASSERT(range.pool->used_bytes >= range.space->bytes);
		range.pool->used_bytes -= range.space->bytes;
		memory_space_close(range.space);
		free((struct piece *)range.space);
		if (range.pool->imported)
			machine_leave(range.pool->imported);
		pool_shrink_locked(range.pool, range.pool->threshold_bytes);
		result = CUDA_SUCCESS;
	} else if (!late_locked(address)) {
		result = memory_give(address);
	}
	pthread_mutex_unlock(&lock);
	return result;
}

void pools_synchronized(CUcontext context, CUstream stream, uint64_t until_ns)
{
	pthread_mutex_lock(&lock);
	for (struct late **at = &lates; *at;) {
		struct late *late = *at;

		if (!moment_passed(&late->freed, context, stream, until_ns)) {
			at = &late->next;
			continue;
		}
		*at = late->next;
		memory_give(late->address);
		free(late);
	}
	for (CUmemoryPool pool = pools, next; pool; pool = next) {
		next = pool->next;
		collect_locked(pool, context, stream, until_ns);
		pool_shrink_locked(pool, pool->threshold_bytes);
	}
	pthread_mutex_unlock(&lock);
}

void pools_close(CUcontext context)
{
	struct memory_range range;

	pthread_mutex_lock(&lock);
	for (struct late **at = &lates; *at;) {
		struct late *late = *at;
		bool goes = memory_find(late->address, &range) && range.context == context;

		if (late->freed.context == context)
			late->freed = (struct moment){0};
		if (!goes) {
			at = &late->next;
			continue;
		}
		*at = late->next;
		free(late);
	}
	for (CUmemoryPool pool = pools; pool; pool = pool->next) {
		for (struct piece *piece = pool->freed; piece; piece = piece->next) {
			if (piece->freed.context == context)
				piece->freed = (struct moment){0};
		}
	}
	pthread_mutex_unlock(&lock);
}
