/*
 * Contexts of the simulated libcuda, and the code that is loaded in them.
 */
#pragma once

#include "cuda_abi.h"

#include "sim_memory.h"
#include "sim_stream.h"

/* ---- module.c */

struct CUfunc_st {
	uint32_t kind; /* OBJECT_FUNCTION */
	bool spins;    /* the kernel spin_ns: its first parameter is its duration */
	bool collects; /* the kernel collective: its parameters are communicator, ranks and ns */
	/* The settings for cuLaunch. Only one thread at a time may launch that way. */
	unsigned block[3];
	uint64_t parameter; /* the first parameter */
	CUmodule module;
	const struct image_kernel *kernel; /* in the module's image (image.h) */
	/* Attributes that the application may set; read and written without a lock. */
	_Atomic int dynamic_shared_bytes; /* 0: the default of all kernels */
	_Atomic int carveout_pct;         /* -1: the driver's choice */
	_Atomic int cluster[3];           /* 0: not set */
	_Atomic int cluster_big, cluster_policy;
};

enum {
	SHARED_BYTES_DEFAULT = 48 << 10, /* for a block, static and dynamic */
	SHARED_BYTES_MAX = 227 << 10,  /* for a block whose kernel may have more than the default */
	SHARED_BYTES_UNIT = 228 << 10, /* of a multiprocessor */
	SHARED_BYTES_RESERVED = 1 << 10, /* of each block, for the driver */
	REGISTERS_UNIT = 64 << 10,       /* of a multiprocessor */
	BLOCKS_UNIT = 32,
	CLUSTER_BLOCKS_MAX = 8,
};

#define IMAGE_UNSIZED ((size_t)-1) /* for module_make: the length is in the image's headers */

void modules_close(CUcontext context);
/* Makes a module that belongs to no context yet, and has taken no memory. */
CUresult module_make(const void *image, size_t bytes, CUmodule *ret_module);
void module_free(CUmodule module); /* also gives its memory back */
/* Takes the module's memory on that GPU, if it has not yet. Under the contexts lock. */
CUresult module_take(CUmodule module, unsigned gpu);
/* When the module is loaded: module_take, unless the memory is taken at the first use. */
CUresult module_load(CUmodule module, unsigned gpu);
/* module_take for the function's module. The caller does not hold the contexts lock. */
CUresult function_load(CUfunction function, unsigned gpu);
bool function_is_loaded(CUfunction function, unsigned gpu);
uint32_t function_local_bytes(CUfunction function);            /* of a thread */
CUfunction module_function(CUmodule module, const char *name); /* NULL if it has none such */
/* Writes at most `most` handles. Returns how many functions there are. */
unsigned module_functions(CUmodule module, CUfunction *functions, unsigned most);
/* A variable's address on a GPU that the module was taken on, and its size; either may be NULL. */
CUresult module_variable(CUmodule module, unsigned gpu, const char *name, CUdeviceptr *ret_address,
			 size_t *ret_bytes);
/* The same for a managed variable, which has one address on all GPUs. CUDA_ERROR_NOT_FOUND also if
 * the module was taken on no GPU yet. */
CUresult module_managed(CUmodule module, const char *name, CUdeviceptr *ret_address,
			size_t *ret_bytes);
unsigned module_binary_version(CUmodule module); /* 90: compute capability 9.0 */
unsigned module_ptx_version(CUmodule module);
/* Reads a file's contents, which the caller frees. */
CUresult module_read(const char *path, char **ret_image, size_t *ret_bytes);

/* ---- context.c */

struct CUctx_st {
	CUdevice device;
	unsigned gpu;
	unsigned api_version;
	unsigned long long id; /* unique, while the handle of a primary context is used again */
	_Atomic bool alive;
	/* Under the contexts lock. */
	unsigned flags;
	unsigned uses; /* retains of a primary context, attaches of another */
	bool primary;
	struct CUctx_st *next;
	size_t limits[3];
	uint64_t stack_bytes; /* taken for stacks beyond the cost of every context */
	CUcontext owner; /* for a green context its primary context, otherwise NULL; constant */
	uint64_t
		green_bytes; /* a green context's cost; a primary one has taken this much for all */
	uint64_t green_used_bytes; /* in a primary context: for green contexts that live */
	CUmodule modules;
	_Atomic uint32_t peers; /* a bit for each GPU whose memory may be used in it */
	/* The fields of timeline.c. */
	struct CUstream_st legacy;   /* constant but for its time */
	_Atomic uint64_t done_at_ns; /* everything in this context, as far as is known */
	_Atomic unsigned backlogs;   /* how many backlogs this context has (backlog.c) */
	_Atomic uint64_t
		blocking_done_ns; /* the streams that the legacy default stream waits for */
	CUarray arrays;           /* under the arrays' lock */
	/* Under the memory lock. */
	struct heap heap, array_heap;
};

/* Whether there may be a stream in the context whose end is not known. */
static inline bool backlogs_any(CUcontext context)
{
	return atomic_load(&context->backlogs) != 0;
}

CUcontext context_current(void); /* NULL if the thread has none */
/* Whether the handle is that of a context, alive or not. False for NULL. */
bool context_known(CUcontext context);
CUresult context_create(CUcontext *ret_context, unsigned flags, CUdevice device, unsigned api);
CUresult context_destroy(CUcontext context);
CUresult context_attach(CUcontext *ret_context); /* one more use of the current one */
CUresult context_detach(CUcontext context);
/* The owner of objects that are made in the context: for a green context its primary context, for
 * another the context itself. */
CUcontext context_owner(CUcontext context);
CUresult context_set_limit(CUcontext context, CUlimit limit, size_t value);
/* A kernel is launched in the context, with `bytes` of local memory for each thread. */
CUresult context_take_local(CUcontext context, uint32_t bytes);
/* Makes a green context that costs `bytes`, and is current in no thread. */
CUresult context_create_green(CUdevice device, uint64_t bytes, CUcontext *ret_context);
CUresult context_destroy_green(CUcontext context);
CUresult context_push(CUcontext context);
CUresult context_pop(CUcontext *ret_context);
CUresult context_set(CUcontext context);
CUresult primary_retain(CUcontext *ret_context, CUdevice device);
CUresult primary_release(CUdevice device);
CUresult primary_reset(CUdevice device);
CUresult primary_state(CUdevice device, unsigned *ret_flags, int *ret_active);
CUresult primary_set_flags(CUdevice device, unsigned flags);
void contexts_lock(void);
void contexts_unlock(void);
