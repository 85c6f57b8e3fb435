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
	bool spins;    /* spin_ns: lasts as long as its first parameter says */
	bool collects; /* collective: of a communicator, so many ranks, for so many ns */
	/* What cuLaunch goes by; of who launches so, one thread at a time. */
	unsigned block[3];
	uint64_t parameter; /* the first */
	CUmodule module;
	const struct image_kernel *kernel; /* image.h; the module's */
	/* Attributes that the application may set; read and written without a lock. */
	_Atomic int dynamic_shared_bytes; /* 0: as many as every kernel may have */
	_Atomic int carveout_pct;         /* -1: the driver's choice */
	_Atomic int cluster[3];           /* 0: not set */
	_Atomic int cluster_big, cluster_policy;
};

enum {
	SHARED_BYTES_DEFAULT = 48 << 10, /* of a block, static and dynamic */
	SHARED_BYTES_MAX = 227 << 10,    /* of a block whose kernel was allowed to have more */
	SHARED_BYTES_UNIT = 228 << 10,   /* of a multiprocessor */
	SHARED_BYTES_RESERVED = 1 << 10, /* of each block, for the driver */
	REGISTERS_UNIT = 64 << 10,       /* of a multiprocessor */
	BLOCKS_UNIT = 32,
	CLUSTER_BLOCKS_MAX = 8,
};

#define IMAGE_UNSIZED ((size_t)-1) /* for module_make: the image's headers say how long it is */

void modules_close(CUcontext context);
/* Of no context yet, and taking nothing. */
CUresult module_make(const void *image, size_t bytes, CUmodule *ret_module);
void module_free(CUmodule module); /* gives back all that it has taken */
/* Takes what it costs on that GPU, once; contexts lock. */
CUresult module_take(CUmodule module, unsigned gpu);
/* The same, when it is loaded, unless it is to be taken when it is used. */
CUresult module_load(CUmodule module, unsigned gpu);
/* Likewise what the function is of; not with the contexts lock. */
CUresult function_load(CUfunction function, unsigned gpu);
uint32_t function_local_bytes(CUfunction function);            /* of a thread */
CUfunction module_function(CUmodule module, const char *name); /* NULL if it has none such */
/* Writes at most so many handles; how many there are. */
unsigned module_functions(CUmodule module, CUfunction *functions, unsigned most);
/* A variable's address on a GPU that the module was taken on, and its size; either may be NULL. */
CUresult module_variable(CUmodule module, unsigned gpu, const char *name, CUdeviceptr *ret_address,
			 size_t *ret_bytes);
unsigned module_binary_version(CUmodule module); /* 90: compute capability 9.0 */
unsigned module_ptx_version(CUmodule module);
/* A file's contents, to be freed. */
CUresult module_read(const char *path, char **ret_image, size_t *ret_bytes);

/* ---- context.c */

struct CUctx_st {
	CUdevice device;
	unsigned gpu;
	unsigned api_version;
	unsigned long long id; /* never the same for two, unlike the primary's handle */
	_Atomic bool alive;
	/* Under the contexts lock. */
	unsigned flags;
	unsigned uses; /* of a primary one: retains; else attaches */
	bool primary;
	struct CUctx_st *next;
	size_t limits[3];
	uint64_t stack_bytes; /* taken beyond what every context has */
	CUcontext owner;      /* the primary one of a green one, NULL of others; constant */
	uint64_t green_bytes; /* a green one's cost; a primary one's, what it has taken for them */
	uint64_t green_used_bytes; /* and of that, for those that live */
	CUmodule modules;
	_Atomic uint32_t peers; /* a bit for each GPU whose memory may be used in it */
	/* timeline.c's. */
	struct CUstream_st legacy;   /* constant but for its time */
	_Atomic uint64_t done_at_ns; /* everything in this context, as far as is known */
	_Atomic unsigned backlogs;   /* backlog.c's, of this context */
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
/* Whether it is a context, alive or not. NULL is none. */
bool context_known(CUcontext context);
CUresult context_create(CUcontext *ret_context, unsigned flags, CUdevice device, unsigned api);
CUresult context_destroy(CUcontext context);
CUresult context_attach(CUcontext *ret_context); /* one more use of the current one */
CUresult context_detach(CUcontext context);
/* Whose is what is made in the context: the primary one if it is green, or itself. */
CUcontext context_owner(CUcontext context);
CUresult context_set_limit(CUcontext context, CUlimit limit, size_t value);
/* A kernel whose threads have so many bytes of local memory is launched in it. */
CUresult context_take_local(CUcontext context, uint32_t bytes);
/* A green context, that costs so much and is current nowhere. */
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
