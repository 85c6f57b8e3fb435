/*
 * Contexts: those that an application creates, the primary context of each GPU, and each thread's
 * stack of current contexts.
 *
 * A context costs its process memory (VGPU_SIM_CONTEXT_MIB) and the GPU a little more that is in no
 * process's figure, as measured on a real driver: 6 MiB for each context, and 3 MiB for the first
 * on a GPU, which the process keeps to its end.
 *
 * A larger stack size of kernels takes memory for every thread that the GPU can have at a time,
 * beyond the 1 KiB that is in the cost of a context. So does local memory beyond the stack size, at
 * the first launch of a kernel that needs it; it is kept.
 *
 * A green context stands for the primary context, with a timeline of its own. Objects that are made
 * in it belong to the primary context, and so does its cost. The primary context keeps that memory
 * when the green context ends, and uses it for the next green context. By cuda.h, a green context
 * retains the primary context, also making it, and releases it when it is destroyed.
 *
 * The handle is the struct's address. Created contexts are never freed, and their addresses are
 * never used again, because other threads may have them on their stacks and find them dead there.
 * The primary context of a device is one struct, which ends and begins again.
 *
 * contexts_lock guards the list, the uses and the flags. A context begins and ends under it, so no
 * thread sees half of one; `alive` itself is read without the lock.
 */
#include "sim.h"

#include <stdlib.h>

#define MIB ((uint64_t)1 << 20)

enum {
	STACK_MAX = 128,
	STACK_SIZE = 1024, /* the default, bytes for each thread */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUctx_st primaries[SIM_GPUS_MAX]; /* by device; lock */
static CUcontext created;                       /* by next; lock */
static unsigned long long last_id;              /* lock */
static bool visited[SIM_GPUS_MAX];              /* the process had a context on the GPU; lock */

static _Thread_local struct {
	unsigned depth;
	CUcontext contexts[STACK_MAX];
} stack;

void contexts_lock(void)
{
	pthread_mutex_lock(&lock);
}

void contexts_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

static struct machine_holding cost(unsigned gpu)
{
	return (struct machine_holding){
		.memory_bytes = config_get()->context_bytes,
		.hidden_bytes = 6 * MIB + (visited[gpu] ? 0 : 3 * MIB),
		.contexts = 1,
	};
}

/* Makes an unused struct a living context. */
static CUresult open_locked(CUcontext context, unsigned flags, CUdevice device, unsigned api)
{
	unsigned gpu;

	if (!device_gpu(device, &gpu))
		return CUDA_ERROR_INVALID_DEVICE;
	struct machine_holding holding = cost(gpu);
	if (machine_take(gpu, &holding))
		return CUDA_ERROR_OUT_OF_MEMORY;
	visited[gpu] = true;
	context->device = device;
	context->gpu = gpu;
	context->api_version = api;
	context->id = ++last_id;
	context->flags = flags;
	context->limits[CU_LIMIT_STACK_SIZE] = STACK_SIZE;
	context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = MIB;
	context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 * MIB;
	timeline_open(context);
	atomic_store(&context->alive, true);
	return CUDA_SUCCESS;
}

static void close_green_locked(CUcontext context)
{
	atomic_store(&context->alive, false);
	timeline_close(context);
	SIM_ASSERT(context->owner->green_used_bytes >= context->green_bytes);
	context->owner->green_used_bytes -= context->green_bytes;
}

/* Ends the context. After this, nothing can be made in it: memory.c and timeline.c check that under
 * their locks. */
static void close_locked(CUcontext context)
{
	unsigned gpu = context->gpu;
	struct machine_holding holding = cost(gpu);

	holding.memory_bytes += context->stack_bytes + context->green_bytes;
	context->stack_bytes = 0;
	context->green_bytes = 0;
	for (CUcontext other = created; other; other = other->next) {
		if (other->owner == context && other->alive)
			close_green_locked(other);
	}
	atomic_store(&context->alive, false);
	timeline_close(context);
	modules_close(context);
	pools_close(context);
	arrays_close(context);
	share_close(context);
	memory_give_all(context);
	context->uses = 0;
	machine_give(gpu, &holding);
}

static bool is_primary(const struct CUctx_st *context)
{
	return context >= primaries && context < primaries + SIM_GPUS_MAX;
}

static bool known_locked(CUcontext context)
{
	if (is_primary(context))
		return context->id != 0;
	for (CUcontext other = created; other; other = other->next) {
		if (other == context)
			return true;
	}
	return false;
}

bool context_known(CUcontext context)
{
	contexts_lock();
	bool known = known_locked(context);
	contexts_unlock();
	return known;
}

CUcontext context_current(void)
{
	return stack.depth ? stack.contexts[stack.depth - 1] : NULL;
}

/* Removes the context from the calling thread's stack, in all places. */
static void stack_forget(CUcontext context)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < stack.depth; i++) {
		if (stack.contexts[i] != context)
			stack.contexts[kept++] = stack.contexts[i];
	}
	stack.depth = kept;
}

static CUresult usable(CUcontext context)
{
	if (context == context_current() && atomic_load(&context->alive))
		return CUDA_SUCCESS;
	if (!context_known(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	return atomic_load(&context->alive) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult context_push(CUcontext context)
{
	CUresult result = context ? usable(context) : CUDA_ERROR_INVALID_CONTEXT;

	if (result)
		return result;
	if (stack.depth == STACK_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack.contexts[stack.depth++] = context;
	return CUDA_SUCCESS;
}

CUresult context_pop(CUcontext *ret_context)
{
	if (!stack.depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	CUcontext top = stack.contexts[--stack.depth];
	if (ret_context)
		*ret_context = top;
	return CUDA_SUCCESS;
}

/* Replaces the top of the stack; NULL removes it. */
CUresult context_set(CUcontext context)
{
	CUresult result = context ? usable(context) : CUDA_SUCCESS;

	if (result)
		return result;
	if (stack.depth)
		stack.depth--;
	return context ? context_push(context) : CUDA_SUCCESS;
}

CUresult context_create(CUcontext *ret_context, unsigned flags, CUdevice device, unsigned api)
{
	const unsigned flags_known = 0xff; /* CU_CTX_FLAGS_MASK */

	if (!ret_context || flags & ~flags_known)
		return CUDA_ERROR_INVALID_VALUE;
	if (stack.depth == STACK_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUcontext context = calloc(1, sizeof *context);
	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	contexts_lock();
	CUresult result = open_locked(context, flags, device, api);
	if (!result) {
		context->uses = 1;
		context->next = created;
		created = context;
	}
	contexts_unlock();
	if (result) {
		free(context);
		return result;
	}
	stack.contexts[stack.depth++] = context;
	*ret_context = context;
	return CUDA_SUCCESS;
}

static CUresult destroy_locked(CUcontext context)
{
	if (!context || is_primary(context) || !known_locked(context) || context->owner)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!context->alive)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	close_locked(context);
	return CUDA_SUCCESS;
}

CUresult context_destroy(CUcontext context)
{
	contexts_lock();
	CUresult result = destroy_locked(context);
	contexts_unlock();
	if (!result)
		stack_forget(context);
	return result;
}

CUresult context_attach(CUcontext *ret_context)
{
	CUcontext context = context_current();
	CUresult result = CUDA_ERROR_INVALID_CONTEXT;

	contexts_lock();
	if (context && !is_primary(context) && !context->owner && context->alive) {
		context->uses++;
		*ret_context = context;
		result = CUDA_SUCCESS;
	}
	contexts_unlock();
	return result;
}

CUresult context_detach(CUcontext context)
{
	CUresult result = CUDA_SUCCESS;
	bool ends = true;

	contexts_lock();
	if (context && !is_primary(context) && known_locked(context) && context->uses > 1) {
		context->uses--;
		ends = false;
	} else {
		result = destroy_locked(context);
	}
	contexts_unlock();
	if (ends && !result)
		stack_forget(context);
	return result;
}

/* The cost of stacks of that size beyond the cost of a context. False: the size is too large. */
static bool stacks_bytes(size_t bytes, uint64_t *ret_bytes)
{
	const uint64_t threads = (uint64_t)SIM_MULTIPROCESSORS * SIM_THREADS_PER_MULTIPROCESSOR;
	uint64_t more = bytes > STACK_SIZE ? bytes - STACK_SIZE : 0, all;

	if (__builtin_mul_overflow(more, threads, &all) || all > UINT64_MAX - GRANULE_BYTES)
		return false;
	*ret_bytes = (all + GRANULE_BYTES - 1) / GRANULE_BYTES * GRANULE_BYTES;
	return true;
}

static CUresult set_stack_locked(CUcontext context, size_t bytes)
{
	uint64_t need, has = context->stack_bytes;

	if (!stacks_bytes(bytes, &need))
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct machine_holding change = {.memory_bytes = need > has ? need - has : has - need};
	if (need < has)
		machine_give(context->gpu, &change);
	else if (machine_take(context->gpu, &change))
		return CUDA_ERROR_OUT_OF_MEMORY;
	context->stack_bytes = need;
	return CUDA_SUCCESS;
}

CUresult context_take_local(CUcontext context, uint32_t bytes)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t need;

	context = context_owner(context);
	if (bytes <= STACK_SIZE || !stacks_bytes(bytes, &need))
		return CUDA_SUCCESS;
	contexts_lock();
	if (!context->alive)
		result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	else if (need > context->stack_bytes)
		result = set_stack_locked(context, bytes);
	contexts_unlock();
	return result;
}

CUresult context_set_limit(CUcontext context, CUlimit limit, size_t value)
{
	CUresult result = CUDA_SUCCESS;

	context = context_owner(context);
	contexts_lock();
	if (!context->alive)
		result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	else if (limit == CU_LIMIT_STACK_SIZE)
		result = set_stack_locked(context, value);
	if (!result)
		context->limits[limit] = value;
	contexts_unlock();
	return result;
}

CUcontext context_owner(CUcontext context)
{
	return context->owner ? context->owner : context;
}

/* Takes memory for one more green context, less the memory that ended green contexts have left. */
static CUresult green_take_locked(CUcontext primary, uint64_t bytes)
{
	uint64_t need = primary->green_used_bytes + bytes;
	struct machine_holding more = {
		.memory_bytes = need > primary->green_bytes ? need - primary->green_bytes : 0};

	if (machine_take(primary->gpu, &more))
		return CUDA_ERROR_OUT_OF_MEMORY;
	primary->green_bytes += more.memory_bytes;
	primary->green_used_bytes = need;
	return CUDA_SUCCESS;
}

static CUresult retain_locked(CUdevice device)
{
	CUcontext context = &primaries[device];
	CUresult result = CUDA_SUCCESS;

	if (!context->alive)
		result = open_locked(context, context->flags, device, 3020);
	if (!result)
		context->uses++;
	return result;
}

/* Whether the primary context has ended. */
static bool release_locked(CUcontext context)
{
	bool ends = context->uses && !--context->uses && context->alive;

	if (ends)
		close_locked(context);
	return ends;
}

CUresult context_create_green(CUdevice device, uint64_t bytes, CUcontext *ret_context)
{
	CUcontext context = calloc(1, sizeof *context), primary = &primaries[device];

	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	contexts_lock();
	CUresult result = retain_locked(device);
	if (!result) {
		result = green_take_locked(primary, bytes);
		if (result)
			release_locked(primary);
	}
	if (!result) {
		context->device = device;
		context->gpu = primary->gpu;
		context->api_version = primary->api_version;
		context->id = ++last_id;
		context->flags = primary->flags;
		context->owner = primary;
		context->green_bytes = bytes;
		timeline_open(context);
		atomic_store(&context->alive, true);
		context->next = created;
		created = context;
		*ret_context = context;
	}
	contexts_unlock();
	if (result)
		free(context);
	return result;
}

CUresult context_destroy_green(CUcontext context)
{
	contexts_lock();
	bool alive = context->alive;
	if (alive)
		close_green_locked(context);
	bool ended = release_locked(context->owner);
	contexts_unlock();
	stack_forget(context);
	if (ended)
		stack_forget(context->owner);
	return alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult primary_retain(CUcontext *ret_context, CUdevice device)
{
	unsigned gpu;

	if (!ret_context)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_gpu(device, &gpu))
		return CUDA_ERROR_INVALID_DEVICE;
	contexts_lock();
	CUresult result = retain_locked(device);
	contexts_unlock();
	if (!result)
		*ret_context = &primaries[device];
	return result;
}

CUresult primary_release(CUdevice device)
{
	unsigned gpu;

	if (!device_gpu(device, &gpu))
		return CUDA_ERROR_INVALID_DEVICE;
	CUcontext context = &primaries[device];
	contexts_lock();
	bool retained = context->uses > 0;
	bool ended = release_locked(context);
	contexts_unlock();
	if (ended)
		stack_forget(context);
	return retained ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult primary_reset(CUdevice device)
{
	unsigned gpu;

	if (!device_gpu(device, &gpu))
		return CUDA_ERROR_INVALID_DEVICE;
	CUcontext context = &primaries[device];
	contexts_lock();
	bool ended = context->alive;
	unsigned uses = context->uses;
	if (ended)
		close_locked(context);
	context->uses = uses; /* retains stay and must be released, as on a real driver */
	contexts_unlock();
	if (ended)
		stack_forget(context);
	return CUDA_SUCCESS;
}

CUresult primary_state(CUdevice device, unsigned *ret_flags, int *ret_active)
{
	unsigned gpu;

	if (!ret_flags || !ret_active)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_gpu(device, &gpu))
		return CUDA_ERROR_INVALID_DEVICE;
	contexts_lock();
	*ret_flags = primaries[device].flags;
	*ret_active = primaries[device].alive;
	contexts_unlock();
	return CUDA_SUCCESS;
}

CUresult primary_set_flags(CUdevice device, unsigned flags)
{
	unsigned gpu;

	if (!device_gpu(device, &gpu))
		return CUDA_ERROR_INVALID_DEVICE;
	contexts_lock();
	primaries[device].flags = flags;
	contexts_unlock();
	return CUDA_SUCCESS;
}
