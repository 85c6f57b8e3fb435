/*
 * Device memory: allocations, and the granules that they take from the GPU.
 *
 * The GPU gives whole granules of 2 MiB. As measured on a real driver:
 *
 *   - An allocation of more than 1 MiB gets a block of granules of its own.
 *   - A smaller allocation goes into a block of one granule that its context has already, if there
 *     is room; also into the unused end of a granule that was taken for a larger allocation.
 *     Otherwise it gets a new block.
 *   - The end of a block of several granules stays unused.
 *   - A block goes back to the GPU with its last allocation.
 *
 * Managed memory, and memory of the 32-bit functions, get blocks of their own whatever the size.
 * Arrays have a heap of their own, in which only small ones share granules; the application gets no
 * address of them. Memory that pools and graphs hand out (struct space) is in blocks, too; pools
 * and graphs account for it, and it belongs to no context. Managed memory is never refused for want
 * of room on the GPU: the part that does not fit is on the host, and stays there (a real driver
 * moves it; machine_pages.c has a model of that).
 *
 *     block    a run of granules; its head is the allocation that it was made for, if any
 *     page     the bookkeeping of a granule in which small allocations can be (page.c): every block
 *              of one granule of device memory has a page, unless the head fills the granule
 *
 * A block is backed by host memory at the same address, which the kernel allocates when it is
 * touched. So device addresses are host addresses, and a copy is a memcpy.
 *
 * The map finds the block and page of any address: two levels, with one entry for each granule. All
 * contexts share the map, as they share addresses. One lock guards all of this; the shared state's
 * lock is taken inside it.
 */
#include "sim.h"

#include <stdlib.h>
#include <sys/mman.h>

struct block {
	CUcontext context; /* NULL for the block of a space */
	struct space *space;
	enum block_kind kind;
	uint64_t address;
	uint64_t granules;
	uint64_t shared;               /* the object of the shared state that it is; 0: none */
	size_t head_bytes;             /* 0: the block has no head, or it was freed */
	uint64_t live;                 /* allocations in the block, with the head */
	uint64_t managed_bytes;        /* of managed memory: the part on the GPU */
	struct memory_advice advice;   /* of managed memory: advice and prefetches */
	struct block *next, *previous; /* in the list of its heap */
};

struct granule {
	struct block *block;
	struct page *page;
};

enum {
	MAP_BITS = 14, /* of each level: addresses up to 2^49 */
	SMALL_MAX_BYTES = 1 << 20,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct granule *map[1 << MAP_BITS]; /* leaves are made at first use and never freed; lock */

/* The map's entry for the address. NULL: the address is out of range; or there is no leaf, and none
 * was to be made or could be made. */
static struct granule *map_at(uint64_t address, bool make)
{
	uint64_t number = address / GRANULE_BYTES;

	if (number >> 2 * MAP_BITS)
		return NULL;
	struct granule **leaf = &map[number >> MAP_BITS];
	if (!*leaf && make)
		*leaf = calloc((size_t)1 << MAP_BITS, sizeof **leaf);
	return *leaf ? &(*leaf)[number & ((1 << MAP_BITS) - 1)] : NULL;
}

static struct granule *block_granule(const struct block *block, uint64_t i)
{
	return map_at(block->address + i * GRANULE_BYTES, false);
}

#ifndef MAP_32BIT /* x86-64 alone has it */
#define MAP_32BIT 0
#endif
#ifndef MAP_FIXED_NOREPLACE /* glibc has it since 2.27 */
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#define LOW_LEAST ((uint64_t)256 << 20)
#define LOW_END   ((uint64_t)1 << 32)

/* Address space below 4 GiB, for processors whose kernel has no flag for that. */
static uint64_t map_low(uint64_t bytes, uint64_t alignment, int flags)
{
	for (uint64_t at = LOW_LEAST; at < LOW_END && bytes <= LOW_END - at; at += alignment) {
		void *got = mmap((void *)at, bytes, PROT_READ | PROT_WRITE,
				 flags | MAP_FIXED_NOREPLACE, -1, 0);

		if (got == (void *)at)
			return at;
		if (got != MAP_FAILED) /* a kernel before 4.17 */
			munmap(got, bytes);
	}
	return 0;
}

/* The space that ended last is kept for the next one. */
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static char *spare;          /* not accessible; or NULL; spare_lock */
static uint64_t spare_bytes; /* spare_lock */

void space_unmap(uint64_t address, uint64_t bytes)
{
	void *at = (void *)(uintptr_t)address;

	if (mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
		 0) != at)
		return;
	pthread_mutex_lock(&spare_lock);
	if (spare)
		munmap(spare, spare_bytes);
	spare = at;
	spare_bytes = bytes;
	pthread_mutex_unlock(&spare_lock);
}

/* Returns 0 if the spare space does not do. */
static uint64_t space_again(uint64_t bytes, uint64_t alignment)
{
	uint64_t at = 0;

	pthread_mutex_lock(&spare_lock);
	if (spare && bytes <= spare_bytes && (uintptr_t)spare % alignment == 0 &&
	    !mprotect(spare, bytes, PROT_READ | PROT_WRITE)) {
		at = (uintptr_t)spare;
		if (bytes < spare_bytes)
			munmap(spare + bytes, spare_bytes - bytes);
		spare = NULL;
	}
	pthread_mutex_unlock(&spare_lock);
	return at;
}

uint64_t space_map(uint64_t bytes, uint64_t alignment, bool low)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

	if (low && !MAP_32BIT)
		return map_low(bytes, alignment, flags);
	uint64_t again = low ? 0 : space_again(bytes, alignment);
	if (again)
		return again;
	flags |= low ? MAP_32BIT : 0;
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (at == MAP_FAILED)
		return 0;
	/* The kernel mostly places it next to an aligned mapping, and so aligned. */
	if ((uintptr_t)at % alignment == 0)
		return (uintptr_t)at;
	munmap(at, bytes);
	if (bytes > UINT64_MAX - alignment)
		return 0;
	at = mmap(NULL, bytes + alignment, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (at == MAP_FAILED)
		return 0;
	size_t before = -(uintptr_t)at % alignment;
	char *address = (char *)at + before;
	if (before)
		munmap(at, before);
	munmap(address + bytes, alignment - before);
	return (uintptr_t)address;
}

static struct machine_holding block_holding(const struct block *block)
{
	uint64_t bytes = block->granules * GRANULE_BYTES;

	return block->kind == BLOCK_MANAGED
		       ? (struct machine_holding){.managed_bytes = block->managed_bytes,
						  .away_bytes = bytes - block->managed_bytes}
		       : (struct machine_holding){.memory_bytes = bytes};
}

/* Takes the block's granules from the GPU. False: the GPU does not have enough. */
static bool block_take(struct block *block)
{
	struct machine_holding holding = block_holding(block);
	unsigned gpu = block->context->gpu;

	if (block->kind != BLOCK_MANAGED)
		return !machine_take(gpu, &holding);
	block->managed_bytes = machine_take_managed(gpu, block->granules * GRANULE_BYTES);
	return true;
}

static void block_give(const struct block *block)
{
	struct machine_holding holding = block_holding(block);

	machine_give(block->context->gpu, &holding);
}

static struct heap *heap_of(CUcontext context, enum block_kind kind)
{
	return kind == BLOCK_ARRAY ? &context->array_heap : &context->heap;
}

static struct heap *block_heap(const struct block *block)
{
	return heap_of(block->context, block->kind);
}

/* Gives a block of one granule its page. */
static struct page *page_make(struct block *block, unsigned head_units)
{
	struct page *page = malloc(sizeof *page);

	if (!page)
		return NULL;
	page_open(page, head_units);
	page->block = block;
	page->address = block->address;
	if (!page_index_add(&block_heap(block)->index, page)) {
		free(page);
		return NULL;
	}
	block_granule(block, 0)->page = page;
	return page;
}

static void block_unmap(struct block *block)
{
	for (uint64_t i = 0; i < block->granules; i++) {
		struct granule *granule = block_granule(block, i);

		if (!granule)
			break; /* the block was made up to here only */
		if (granule->page) {
			page_index_remove(&block_heap(block)->index, granule->page);
			free(granule->page);
		}
		*granule = (struct granule){0};
	}
	space_unmap(block->address, block->granules * GRANULE_BYTES);
}

/* Makes the block's address space, map entries and page. Its granules are taken already. */
static bool block_map(struct block *block)
{
	block->address =
		space_map(block->granules * GRANULE_BYTES, GRANULE_BYTES, block->kind == BLOCK_LOW);
	if (!block->address)
		return false;
	for (uint64_t i = 0; i < block->granules; i++) {
		struct granule *granule = map_at(block->address + i * GRANULE_BYTES, true);

		if (!granule) {
			block_unmap(block);
			return false;
		}
		*granule = (struct granule){.block = block};
	}
	unsigned head_units =
		(unsigned)((block->head_bytes + UNIT_BYTES - 1) / UNIT_BYTES % PAGE_UNITS);
	bool filled = block->head_bytes && !head_units;
	bool shared = block->kind == BLOCK_DEVICE
			      ? !filled
			      : block->kind == BLOCK_ARRAY && !block->head_bytes;
	if (shared && block->granules == 1 && !page_make(block, head_units)) {
		block_unmap(block);
		return false;
	}
	return true;
}

/* Makes a block, with a head unless head_bytes is 0. */
static struct block *block_open(CUcontext context, enum block_kind kind, size_t head_bytes)
{
	struct heap *heap = heap_of(context, kind);
	struct block *block = malloc(sizeof *block);

	if (!block)
		return NULL;
	*block = (struct block){.context = context, .kind = kind, .head_bytes = head_bytes};
	block->advice.preferred = NOWHERE;
	block->advice.prefetched = NOWHERE;
	block->granules = head_bytes ? (head_bytes - 1) / GRANULE_BYTES + 1 : 1;
	block->live = head_bytes ? 1 : 0;
	if (!block_take(block)) {
		free(block);
		return NULL;
	}
	if (!block_map(block)) {
		block_give(block);
		free(block);
		return NULL;
	}
	block->next = heap->blocks;
	if (block->next)
		block->next->previous = block;
	heap->blocks = block;
	return block;
}

static void block_close(struct block *block)
{
	struct heap *heap = block_heap(block);

	if (block->previous)
		block->previous->next = block->next;
	else
		heap->blocks = block->next;
	if (block->next)
		block->next->previous = block->previous;
	block_unmap(block);
	if (block->shared)
		machine_leave(block->shared);
	else
		block_give(block);
	free(block);
}

static void block_put(struct block *block)
{
	SIM_ASSERT(block->live);
	if (!--block->live)
		block_close(block);
}

static struct page *page_new(CUcontext context, enum block_kind kind)
{
	struct block *block = block_open(context, kind, 0);

	return block ? block_granule(block, 0)->page : NULL;
}

static uint64_t small_take(CUcontext context, enum block_kind kind, size_t bytes)
{
	struct page_index *index = &heap_of(context, kind)->index;
	unsigned units = (unsigned)((bytes + UNIT_BYTES - 1) / UNIT_BYTES);
	struct page *page;
	int unit = -1;

	while (unit < 0 && (page = page_index_find(index, units))) {
		unit = page_take(page, units);
		page_index_update(index, page);
	}
	if (unit < 0) {
		page = page_new(context, kind);
		if (!page)
			return 0;
		unit = page_take(page, units);
	}
	page->block->live++;
	return page->address + (unsigned)unit * UNIT_BYTES;
}

CUresult memory_take(CUcontext context, size_t bytes, enum block_kind kind, uint64_t *ret_address)
{
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	uint64_t address = 0;

	context = context_owner(context);
	pthread_mutex_lock(&lock);
	if (!context->alive) {
		result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	} else if ((kind == BLOCK_DEVICE || kind == BLOCK_ARRAY) && bytes <= SMALL_MAX_BYTES) {
		address = small_take(context, kind, bytes);
	} else {
		struct block *block = block_open(context, kind, bytes);

		address = block ? block->address : 0;
	}
	pthread_mutex_unlock(&lock);
	if (!address)
		return result;
	*ret_address = address;
	return CUDA_SUCCESS;
}

/* Frees the head's part of the granule. */
static void head_give(struct block *block)
{
	struct page *page = block_granule(block, 0)->page;

	block->head_bytes = 0;
	if (block->live == 1)
		return; /* the whole block is freed */
	page_give(page, 0, page->head_units);
	page->head_units = 0;
	page_index_update(&block_heap(block)->index, page);
}

static bool small_give(struct page *page, uint64_t address)
{
	unsigned unit = (unsigned)((address - page->address) / UNIT_BYTES);
	unsigned units = address % UNIT_BYTES ? 0 : page_length(page, unit);

	if (!units || unit < page->head_units)
		return false;
	page_give(page, unit, units);
	page_index_update(&block_heap(page->block)->index, page);
	return true;
}

static CUresult give(uint64_t address, bool array)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&lock);
	struct granule *granule = map_at(address, false);
	struct block *block = granule ? granule->block : NULL;
	if (block && (block->space || (block->kind == BLOCK_ARRAY) != array))
		block = NULL; /* freed by its pool, its graph, or the function for arrays */
	if (block && block->head_bytes && address == block->address) {
		head_give(block);
		result = CUDA_SUCCESS;
	} else if (block && granule->page && small_give(granule->page, address)) {
		result = CUDA_SUCCESS;
	}
	if (!result)
		block_put(block);
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult memory_give(uint64_t address)
{
	return give(address, false);
}

CUresult memory_give_array(uint64_t address)
{
	return give(address, true);
}

void memory_give_all(CUcontext context)
{
	pthread_mutex_lock(&lock);
	while (context->heap.blocks)
		block_close(context->heap.blocks);
	while (context->array_heap.blocks)
		block_close(context->array_heap.blocks);
	pthread_mutex_unlock(&lock);
}

CUresult memory_space_open(struct space *space, enum block_kind kind)
{
	struct block *block = malloc(sizeof *block);

	if (!block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*block = (struct block){
		.space = space,
		.kind = kind,
		.granules = (space->bytes - 1) / GRANULE_BYTES + 1,
		.head_bytes = space->bytes,
		.live = 1,
	};
	pthread_mutex_lock(&lock);
	bool mapped = block_map(block);
	pthread_mutex_unlock(&lock);
	if (!mapped) {
		free(block);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	space->address = block->address;
	return CUDA_SUCCESS;
}

void memory_space_close(struct space *space)
{
	pthread_mutex_lock(&lock);
	struct block *block = map_at(space->address, false)->block;
	block_unmap(block);
	pthread_mutex_unlock(&lock);
	free(block);
	space->address = 0;
}

static bool find_locked(uint64_t address, struct memory_range *ret_range)
{
	const struct granule *granule = map_at(address, false);
	const struct block *block = granule ? granule->block : NULL;

	if (!block || block->kind == BLOCK_ARRAY)
		return false;
	*ret_range = (struct memory_range){
		.context = block->context,
		.device = block->space ? block->space->device : block->context->device,
		.pool = block->space ? block->space->pool : NULL,
		.space = block->space,
		.kind = block->kind,
		.access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	if (address - block->address < block->head_bytes) {
		ret_range->address = block->address;
		ret_range->bytes = block->head_bytes;
		return true;
	}
	const struct page *page = granule->page;
	if (!page)
		return false;
	int start = page_start(page, (unsigned)((address - page->address) / UNIT_BYTES));
	if (start < 0 || (unsigned)start < page->head_units)
		return false;
	ret_range->address = page->address + (unsigned)start * UNIT_BYTES;
	ret_range->bytes = (size_t)page_length(page, (unsigned)start) * UNIT_BYTES;
	return true;
}

bool memory_find(uint64_t address, struct memory_range *ret_range)
{
	pthread_mutex_lock(&lock);
	bool found = find_locked(address, ret_range);
	pthread_mutex_unlock(&lock);
	return found || address_map_find(address, ret_range);
}

/* Memory of pools and graphs has no handles of this kind. */
static CUresult block_share(struct block *block)
{
	struct machine_object object = {.bytes = block->granules * GRANULE_BYTES};

	if (block->kind != BLOCK_DEVICE || block->space)
		return CUDA_ERROR_INVALID_VALUE;
	object.gpu = block->context->gpu;
	if (block->shared || !machine_share(&object, &block->shared))
		return CUDA_SUCCESS;
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult memory_share(uint64_t address, uint64_t *ret_object, uint64_t *ret_offset)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct memory_range range;

	pthread_mutex_lock(&lock);
	if (find_locked(address, &range)) {
		struct block *block = map_at(address, false)->block;

		result = block_share(block);
		*ret_object = block->shared;
		*ret_offset = range.address - block->address;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

/* The managed allocation that contains the whole range, or NULL. */
static struct block *managed_at_locked(uint64_t address, size_t bytes)
{
	const struct granule *granule = map_at(address, false);
	struct block *block = granule ? granule->block : NULL;

	if (!block || block->kind != BLOCK_MANAGED || !bytes)
		return NULL;
	uint64_t offset = address - block->address;
	return offset < block->head_bytes && bytes <= block->head_bytes - offset ? block : NULL;
}

bool memory_advice_get(uint64_t address, size_t bytes, struct memory_advice *ret_advice)
{
	pthread_mutex_lock(&lock);
	const struct block *block = managed_at_locked(address, bytes);
	if (block)
		*ret_advice = block->advice;
	pthread_mutex_unlock(&lock);
	return block != NULL;
}

void memory_advice_set(uint64_t address, size_t bytes, const struct memory_advice *advice)
{
	pthread_mutex_lock(&lock);
	struct block *block = managed_at_locked(address, bytes);
	if (block)
		block->advice = *advice;
	pthread_mutex_unlock(&lock);
}
