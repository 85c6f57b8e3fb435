/*
 * The simulated libcuda's map of itself: what one .c file may call of another.
 *
 *   driver.c          cuInit, fork, the checks with which every exported function begins
 *   device.c          which GPUs this process sees, and what they are like
 *   context.c         contexts, primary ones, each thread's stack   (context_calls.c: their API)
 *   memory.c, page.c  what the driver hands out and what it costs   (memory_calls.c: their API)
 *   advice.c          where managed memory should be;  peer.c: other GPUs' memory
 *   stream_calls.c    more of streams: what waits, and what they are;  texture.c: and surfaces
 *   memory_host.c     page-locked host memory, and what a pointer points to
 *   pool.c            stream-ordered memory; pool_list.c: its pools (pool_calls.c: its API);
 *                     pool_share.c: those of other processes
 *   virtual.c         memory by handle, virtual_map.c: and where it is mapped;  multicast.c
 *   array.c           arrays, array_size.c: and how big they are    (array_calls.c: their API)
 *   share.c           memory of other processes;  external.c: of other libraries
 *   region.c          addresses of device memory that memory.c does not know
 *   handle.c          which handles there are
 *   transfer.c        copies and fills                              (transfer_calls.c: their API)
 *   module.c          code and its variables;  library.c: of no context;  kernel.c: kernels
 *   image.h           what code images say (image.c, image_elf.c, image_ptx.c, image_unpack.c)
 *   green.c           shares of a GPU
 *   timeline.c        when queued work is done                      (timeline_calls.c: their API,
 *                                                                    and launch_calls.c)
 *   backlog.c         what is queued behind what is still to happen;  backlog_thread.c: its threads
 *   graph.c           graphs; graph_exec.c: ready to be launched    (graph_calls.c, graph_nodes.c:
 * their API) graph_memory.c    what graphs allocate capture.c         streams that record instead
 * (capture_calls.c: their API) procaddress.c     the index of everything exported (stub.c: what
 * does nothing) state.c           what all processes share: what each holds;  state_objects.c: what
 * several do; state_pages.c: managed memory that moves; state_machine.c: the file and its locks
 * config.c          the environment;  faults.c: which calls are to fail
 *
 * Locks, to be taken in this order: contexts (context.c), objects (timeline.c), graphs (graph.c),
 * pools (pool.c), backlog (backlog.c), arrays (array.c), virtual (virtual.c), memory (memory.c),
 * the shared state's (state_machine.c), and inside any of them those of region.c and handle.c. A
 * context is never freed, so a stale handle is always safe to look at.
 *
 * Every exported function is declared here from cuda.def: one defined otherwise does not compile,
 * and a row without a definition does not link, because procaddress.c refers to all of them.
 */
#pragma once

#include "cuda_abi.h"

#include "config.h"
#include "faults.h"
#include "state.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#define CU_HOOK(name, class, parameters, arguments) CUresult name parameters;
#define CU_CALL(name, class, parameters)            CUresult name parameters;
#define CU_SIM(name, class, parameters)             CUresult name parameters;
#include "cuda.def"
#pragma GCC visibility pop

/* ---- driver.c */

/* First in every exported function, with __func__: a scripted fault, or what stands in the way. */
CUresult enter(const char *function);                                 /* after cuInit */
CUresult enter_early(const char *function);                           /* at any time */
CUresult enter_context(const char *function, CUcontext *ret_context); /* with a current context */
/* Last in those that a test may want to stop there. Returns the result. */
CUresult leave(const char *function, CUresult result);

/* ---- device.c */

/* Reads CUDA_VISIBLE_DEVICES: which of the machine's GPUs this process sees. What cuInit answers
 * where it sees none. */
CUresult device_discover(const struct sim_config *config);
unsigned device_count(void);
/* The machine's number of the GPU that this process calls `device`; false if there is none. */
bool device_gpu(CUdevice device, unsigned *ret_gpu);

/* ---- page.c: the free space of one 2 MiB granule, in units of 512 bytes */

enum {
	UNIT_BYTES = 512,
	GRANULE_BYTES = 2 << 20,
	PAGE_UNITS = GRANULE_BYTES / UNIT_BYTES,
	PAGE_WORDS = PAGE_UNITS / 64,
};

struct page {
	struct block *block;
	uint64_t address;
	unsigned index;            /* in its heap's page_index */
	unsigned head_units;       /* taken by the allocation that the block was made for */
	unsigned bound;            /* no free run is longer than this many units */
	unsigned low;              /* no free unit below */
	uint64_t used[PAGE_WORDS]; /* a bit a unit */
	uint64_t last[PAGE_WORDS]; /* set for the last unit of every allocation */
};

/* Pages by the longest run that they may have: the leftmost that may do is found in O(log n). */
struct page_index {
	struct page **pages;
	uint16_t *bounds; /* a tree: [1] is the root, children of n are 2n and 2n+1, leaves are
			     bounds */
	unsigned count, capacity;
};

void page_open(struct page *page, unsigned head_units);
/* The first unit of a run that is now taken; -1 if there is none, and bound is the truth then. */
int page_take(struct page *page, unsigned units);
/* The units of the allocation that begins there, 0 if none does. */
unsigned page_length(const struct page *page, unsigned unit);
/* Where the allocation that this unit belongs to begins, -1 if it is free. */
int page_start(const struct page *page, unsigned unit);
void page_give(struct page *page, unsigned unit, unsigned units);

bool page_index_add(struct page_index *index, struct page *page);
void page_index_remove(struct page_index *index, struct page *page);
void page_index_update(struct page_index *index, const struct page *page);
struct page *page_index_find(const struct page_index *index, unsigned units);

/* ---- memory.c */

enum block_kind {
	BLOCK_DEVICE,  /* small allocations may share its last granule */
	BLOCK_LOW,     /* below 4 GiB, for the functions with 32-bit pointers; shared by nobody */
	BLOCK_MANAGED, /* cuMemAllocManaged's; shared by nobody */
	BLOCK_ARRAY,   /* arrays', shared by small ones */
	BLOCK_SPACE,   /* a struct space's, and likewise of managed and of host memory */
	BLOCK_SPACE_MANAGED,
	BLOCK_SPACE_HOST,
};

/* What a pool or a graph hands out: addresses, for which its owner accounts. */
struct space {
	uint64_t address;
	size_t bytes;
	CUdevice device;
	CUmemoryPool pool; /* NULL: a graph's */
};

struct heap {
	struct block *blocks;
	struct page_index index;
};

struct memory_range {
	CUcontext context; /* NULL for a space's: that belongs to a device */
	CUdevice device;
	CUmemoryPool pool;   /* that it is from, or NULL */
	struct space *space; /* which its owner's lock keeps, or NULL */
	enum block_kind kind;
	unsigned access; /* CU_MEM_ACCESS_FLAGS_PROT_… */
	uint64_t address;
	size_t bytes;
};

#define NOWHERE ((CUmemLocation){CU_MEM_LOCATION_TYPE_INVALID, 0})

/* Of a managed allocation as a whole. Nothing is moved. */
struct memory_advice {
	bool read_mostly;
	CUmemLocation preferred, prefetched; /* NOWHERE: never said */
	uint32_t accessed_by;                /* a bit a device of this process */
	bool accessed_by_host;
};

/* False unless the range lies in one managed allocation. */
bool memory_advice_get(uint64_t address, size_t bytes, struct memory_advice *ret_advice);
void memory_advice_set(uint64_t address, size_t bytes, const struct memory_advice *advice);

/* Address space, zeroed when touched, aligned to a power of two of at least a granule; 0 if there
 * is none. */
uint64_t space_map(uint64_t bytes, uint64_t alignment, bool low);

CUresult memory_take(CUcontext context, size_t bytes, enum block_kind kind, uint64_t *ret_address);
/* CUDA_ERROR_INVALID_VALUE unless an allocation begins at the address that is not a space. */
CUresult memory_give(uint64_t address);
CUresult memory_give_array(uint64_t address);
/* Gives back all that the context has. */
void memory_give_all(CUcontext context);
/* The allocation that the address lies in. */
bool memory_find(uint64_t address, struct memory_range *ret_range);
/* Finds addresses for a space, whose other members are set. */
CUresult memory_space_open(struct space *space, enum block_kind kind);
void memory_space_close(struct space *space);

/* ---- pool.c, pool_list.c */

enum {
	CHUNK_BYTES = 32 << 20, /* pools and graphs take device memory in units of this */
};

/* Up to a multiple of CHUNK_BYTES; what is too big for that stays as it is. */
uint64_t chunks_round(uint64_t bytes);

CUresult pool_create(const CUmemPoolProps *properties, CUmemoryPool *ret_pool);
CUresult pool_destroy(CUmemoryPool pool);
/* The one that is always there for a kind of memory, and the one in use for it. */
CUresult pool_default(const CUmemLocation *location, CUmemAllocationType type,
		      CUmemoryPool *ret_pool);
CUresult pool_current(const CUmemLocation *location, CUmemAllocationType type,
		      CUmemoryPool *ret_pool);
CUresult pool_set_current(const CUmemLocation *location, CUmemAllocationType type,
			  CUmemoryPool pool);
CUresult pool_properties(CUmemoryPool pool, CUmemPoolProps *ret_properties);
CUresult pool_trim(CUmemoryPool pool, uint64_t keep_bytes);
CUresult pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value);
CUresult pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *accesses, size_t count);
CUresult pool_get_access(CUmemoryPool pool, const CUmemLocation *location,
			 CUmemAccess_flags *ret_flags);
CUresult pool_take(CUmemoryPool pool, size_t bytes, CUstream stream, uint64_t *ret_address);
/* Both for any kind of device memory: in the order of the stream, and at once. */
CUresult pool_give_async(uint64_t address, CUstream stream);
CUresult pool_give(uint64_t address);
/* After something was waited for: what was freed before until_ns in the stream (NULL: in any of the
 * context) is done with, and pools shrink. */
void pools_synchronized(CUcontext context, CUstream stream, uint64_t until_ns);
/* The context ends: nobody waits for its streams any more. */
void pools_close(CUcontext context);

/* ---- capture.c */

/* Where a copy's or fill's rows are, in an array or from an address on. */
struct transfer_side {
	CUarray array; /* or NULL */
	uint64_t address;
	size_t pitch, slice; /* bytes from one row to the next, and from one slice */
	bool on_device;      /* it must be device memory */
};

/* What a stream is given, and a node of a graph does, but for memory and other graphs. */
struct graph_work {
	CUgraphNodeType type;
	uint64_t duration_ns;  /* on the device */
	uint64_t host_ns;      /* a copy from or to the host, which the device has no part in */
	uint64_t communicator; /* a collective's, which has so many ranks; 0: it is none */
	unsigned ranks;
	/* Copies, and fills with elements of 1, 2 or 4 bytes: so many slices of rows of bytes. */
	struct transfer_side target, source;
	size_t bytes, rows, slices;
	unsigned value, element_bytes;
};

/* For whatever a stream is given: whether it is to become a node, by one of the functions below. */
CUresult capture_enter(CUstream stream, bool *ret_capturing);
CUresult capture_work(CUstream stream, const struct graph_work *work);
CUresult capture_take(CUstream stream, const CUmemPoolProps *properties, size_t bytes,
		      uint64_t *ret_address);
CUresult capture_give(CUstream stream, uint64_t address);
CUresult capture_child(CUstream stream, CUgraph child);
/* For what cannot be captured, of a stream, of all streams of a context; and for what is unsafe
 * while anything is. It spoils the capture. */
CUresult capture_refuse(CUstream stream);
CUresult capture_refuse_context(CUcontext context);
CUresult capture_unsafe(void);
CUresult capture_begin(CUstream stream, CUstreamCaptureMode mode);
CUresult capture_end(CUstream stream, CUgraph *ret_graph);
CUresult capture_status(CUstream stream, CUstreamCaptureStatus *ret_status);
CUresult capture_exchange_mode(CUstreamCaptureMode *mode);
void capture_abandon(CUstream stream); /* the stream ends */

/* ---- graph_memory.c */

/* Frees a graph's allocation, in the order of the stream or (NULL) at once; false if there is no
 * such at the address. */
bool graph_give(uint64_t address, CUstream stream, CUresult *ret_result);
void graph_memory_trim(CUdevice device);
CUresult graph_memory_get(CUdevice device, CUgraphMem_attribute attribute, uint64_t *ret_bytes);
/* Begins a highest amount anew. */
CUresult graph_memory_reset(CUdevice device, CUgraphMem_attribute attribute);

/* ---- transfer.c */

/* Does a copy or fill, at once. */
CUresult transfer_do(const struct graph_work *work);
/* What a node of a graph would do: how long it takes, or why it is refused. */
CUresult transfer_prepare(struct graph_work *work);
/* transfer_calls.c: what a descriptor asks for. */
void transfer_describe(const CUDA_MEMCPY3D *what, struct graph_work *ret_work);
/* Gives it to the stream. */
CUresult transfer_submit(const char *function, CUstream handle, bool per_thread,
			 struct graph_work *work);

/* ---- launch_calls.c */

/* What launching the kernel with that grid and block would be. */
CUresult kernel_work(CUfunction function, const unsigned shape[6], void **parameters, void **extra,
		     struct graph_work *ret_work);
/* Makes the granules of an allocation an object of the shared state: which, and where it begins
 * there. Not of managed memory. */
CUresult memory_share(uint64_t address, uint64_t *ret_object, uint64_t *ret_offset);

/* ---- region.c */

struct region {
	uint64_t address;
	size_t bytes;
	CUcontext context; /* NULL if it is of none */
	CUdevice device;
	_Atomic unsigned access;
};

/* False if memory is short, or a region overlaps. */
bool region_add(struct region *region);
void region_remove(struct region *region);
/* One that overlaps the range, which must not go meanwhile. */
struct region *region_at(uint64_t address, size_t bytes);
bool region_find(uint64_t address, struct memory_range *ret_range);

/* ---- handle.c */

enum handle_kind {
	HANDLE_MEMORY = 1, /* struct memory_handle */
	HANDLE_ARRAY,      /* struct CUarray_st, these three */
	HANDLE_MIPMAP,
	HANDLE_LEVEL,
	HANDLE_EXTERNAL,
	HANDLE_LIBRARY,
	HANDLE_MODULE, /* a library's; those of contexts are in their lists */
	HANDLE_RESOURCES,
	HANDLE_GREEN,
	HANDLE_TEXTURE, /* struct texture, of texture.c; and surfaces */
	HANDLE_SURFACE,
};

bool handle_add(const void *object, enum handle_kind kind);
bool handle_is(const void *object, enum handle_kind kind);
void handle_remove(const void *object);

/* ---- virtual.c, virtual_map.c, multicast.c; all of it under virtual_lock */

struct physical {
	unsigned handles;
	bool on_device;
	unsigned gpu;
	uint64_t bytes, offset; /* in virtual_contents() */
	uint64_t shared;        /* an object of the shared state, 0: none */
	struct physical *next;  /* of those that are one */
	CUmemAllocationProp prop;
};

struct memory_handle {
	unsigned references, uses;
	size_t bytes;
	CUmemAllocationHandleType types; /* that it may be exported as */
	struct physical *physical;       /* NULL: a multicast object, to which the rest belongs */
	uint64_t shared;                 /* as physical's */
	unsigned devices, added;         /* how many it is for; a bit each that it has */
	struct multicast_binding *bindings;
};

void virtual_lock(void);
void virtual_unlock(void);
int virtual_contents(void); /* the file */
struct memory_handle *virtual_handle_new(struct physical *physical, size_t bytes);
/* What the application's handle means, NULL if nothing. */
struct memory_handle *virtual_handle(CUmemGenericAllocationHandle value);
struct memory_handle *virtual_mapped(uint64_t address);
void virtual_use(struct memory_handle *handle);
void virtual_unuse(struct memory_handle *handle); /* it may be gone then */
void multicast_close(struct memory_handle *handle);
/* The object of the shared state that it now is. */
CUresult virtual_share(struct memory_handle *handle, uint64_t *ret_object);
/* A handle to an object. */
CUresult virtual_import(uint64_t object, struct memory_handle **ret_handle);

/* ---- share.c */

void share_close(CUcontext context);

/* ---- external.c */

CUresult external_give(uint64_t address); /* as memory_give */

/* ---- array_size.c */

enum {
	ARRAY_ALIGNMENT = 64 << 10,
};

/* Bytes, a multiple of that; 0 if there can be no such array. */
uint64_t array_size(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels);
/* Makes the descriptor of the whole that of a level. */
void array_level(CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned level);

/* ---- array.c; a mipmapped array is a struct CUarray_st too */

/* Takes nothing if `takes` is false, or for memory that comes later. */
CUresult array_make(CUcontext context, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels,
		    enum handle_kind kind, bool takes, CUarray *ret_array);
CUresult array_destroy(const void *handle, enum handle_kind kind);
CUresult array_requirements(const void *handle, enum handle_kind kind, uint64_t *ret_bytes);
CUresult array_describe(CUarray handle, CUDA_ARRAY3D_DESCRIPTOR *ret_desc);
CUresult array_part(CUmipmappedArray handle, unsigned level, CUarray *ret_part);
CUresult array_map(const CUarrayMapInfo *info); /* or unmap */
void arrays_close(CUcontext context);

/* ---- timeline.c */

#define TIME_UNKNOWN UINT64_MAX

/* A moment of the timeline. All zeroes: long ago. */
struct when {
	_Atomic uint64_t at_ns; /* TIME_UNKNOWN: when `task` ends */
	struct task *task;      /* backlog.c's */
};

struct CUstream_st {
	_Atomic uint32_t kind; /* OBJECT_STREAM while it exists */
	unsigned flags;
	_Atomic(CUcontext) context;
	int priority;
	struct CUstream_st *next;    /* in the free list */
	_Atomic uint64_t thread;     /* whose per-thread default stream it is, 0 if nobody's */
	_Atomic uint64_t done_at_ns; /* as far as is known */
	_Atomic(struct backlog *) backlog; /* what is behind that, or NULL */
};

struct CUevent_st {
	_Atomic uint32_t kind; /* OBJECT_EVENT while it exists */
	unsigned flags;
	_Atomic(CUcontext) context;
	struct CUevent_st *next;  /* in the free list */
	_Atomic(CUstream) stream; /* recorded in; NULL: in all that the default stream waits for */
	struct when when;         /* at 0: never recorded */
	_Atomic bool captured;    /* recorded last while its stream was */
};

enum {
	OBJECT_STREAM = 0x6d727473,
	OBJECT_EVENT = 0x746e7665,
	OBJECT_FUNCTION = 0x636e7566,
};

enum {
	STREAM_PRIORITY_GREATEST = -5, /* the least is 0 */
};

uint64_t timeline_now(void);
void timeline_sleep_until(uint64_t when_ns);

/* What an application's handle means in that context; per_thread is true in the _pts variants. */
CUresult stream_resolve(CUcontext context, CUstream handle, bool per_thread, CUstream *ret_stream);
/* When something given to it now could begin, as far as its context is concerned and that is known.
 */
uint64_t stream_ready_at(const struct CUstream_st *stream);
/* Whether all is done that the stream has been given, and until it is; the legacy default stream
 * stands for all blocking ones. */
bool stream_done(CUstream stream);
void stream_wait(CUstream stream);
/* Until something given to it now could begin. */
void stream_wait_ready(CUstream stream);
void context_wait(CUcontext context); /* for all its streams */
/* Whether the legacy default stream waits for it. */
bool stream_blocks(const struct CUstream_st *stream);
/* Queues what takes no time and waits for its stream and until not_before_ns; when it happens, as
 * far as is known. */
uint64_t stream_mark(CUstream stream, uint64_t not_before_ns);
/* Queues a kernel. */
void stream_launch(CUstream stream, uint64_t duration_ns);
/* What is queued from now on comes after that moment. */
void stream_after(CUstream stream, struct when *when);
/* The moment at which the stream, or all of the context, will have done what it has been given. */
void stream_end(CUstream stream, struct when *ret_when);
void context_end(CUcontext context, struct when *ret_when);
CUresult stream_create(CUcontext context, unsigned flags, CUstream *ret_stream);
CUresult stream_destroy(CUstream stream); /* what it has been given goes on */
CUresult event_create(CUcontext context, unsigned flags, CUevent *ret_event);
CUresult event_destroy(CUevent event);
void timeline_open(CUcontext context);
void timeline_close(CUcontext context); /* ends all its streams and events */
/* For backlog.c: the stream, or a destroyed one of the context, is done at that time at the
 * earliest. */
void stream_extend(CUstream stream, uint64_t end_ns);
void context_extend(CUcontext context, uint64_t end_ns);

/* ---- backlog.c */

/* A function of the host, of either kind. */
struct stream_call {
	CUhostFn function; /* or NULL */
	CUstreamCallback callback;
	CUstream handle; /* for the latter: the application's */
	void *data;
};

/* A word of memory that is waited for, or written. */
struct stream_value {
	uint64_t address, value;
	unsigned flags; /* CU_STREAM_WAIT_VALUE_... */
	bool wide;      /* 64 bits, not 32 */
	bool writes;
};

/* stream_calls.c: calls it; writes it, or says whether it is what is waited for. */
void stream_call_make(const struct stream_call *call);
bool stream_value_done(const struct stream_value *value);

/* Queue: what ends at once, and has all the stream is given wait until not_before_ns or for that
 * moment; a kernel, collective, copy or fill; and so on. CUDA_ERROR_OUT_OF_MEMORY also if there are
 * too many communicators. */
void backlog_mark(CUstream stream, uint64_t not_before_ns);
void backlog_after(CUstream stream, struct when *when);
CUresult backlog_work(CUstream stream, const struct graph_work *work);
CUresult backlog_call(CUstream stream, const struct stream_call *call);
CUresult backlog_value(CUstream stream, const struct stream_value *value);
void backlog_end(CUstream stream, struct when *ret_when);
void backlog_end_of_context(CUcontext context, struct when *ret_when);

/* Whether there is anything whose end is not known: given to the stream, and to those that it
 * stands for. Then, until all ends are known: of that; of what else its next task would wait for;
 * of all in the context. */
bool backlog_pending(CUstream stream);
void backlog_wait(CUstream stream);
void backlog_wait_ready(CUstream stream);
void backlog_wait_context(CUcontext context);

void backlog_leave(CUstream stream);   /* it ends; what it has been given goes on */
void backlogs_drop(CUcontext context); /* likewise, and with it what it has been given */
void backlogs_forked(void);

uint64_t when_at(struct when *when); /* TIME_UNKNOWN as long as it is not known */
void when_set(struct when *when, uint64_t at_ns);
uint64_t when_wait(struct when *when); /* until it has come; when that was */

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
