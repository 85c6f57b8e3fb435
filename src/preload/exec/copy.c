/*
 * Fills of the device's memory, and copies within it. They keep the device busy as kernels do, so
 * they wait until the pacer admits them, as launches do (launch.c, which also says what holds for
 * captured streams).
 *
 * Copies to and from the host, and between devices, are made by copy engines. They are not
 * throttled, but windows leave their time out (pace/sync.h). Some functions make copies of both
 * kinds. For these, the hook asks the driver where the two addresses lie, and only where a launch
 * could be held back. A function whose name says the kind asks nothing.
 *
 * Costs are learned by kind and size. The functions without a stream parameter use the default
 * stream. They return when the work is submitted, or later.
 */
#include "cuda.h"
#include "hooks.h"
#include "launch.h"
#include "quota.h"

/* -- kinds and sizes --------------------------------------------------------------------------- */

/* The keys by which costs are learned (struct cost_of). The low two bits of kernels and of graphs
 * have other values (launch.c). */
enum kind {
	NOT_HELD = 0, /* a copy that is not throttled; its "shape" is its bytes */
	FILL = 1 << 2 | 3,
	FILL_ROWS = 2 << 2 | 3,
	COPY = 3 << 2 | 3,
	COPY_ROWS = 4 << 2 | 3,
};

#define SMALL_BYTES ((uint64_t)64 << 10) /* below this, the launch is most of the cost */

static unsigned log2_of(uint64_t value)
{
	return 63 - (unsigned)__builtin_clzll(value);
}

/* The number of the size's class. There are four classes for each power of two. */
static uint64_t size_class(uint64_t bytes)
{
	unsigned log = log2_of(bytes);

	return bytes < SMALL_BYTES ? 1 : (uint64_t)log << 2 | (bytes >> (log - 2) & 3);
}

/* A size of 0, or one that makes no sense, goes to the driver, which refuses it or does nothing. */
static struct cost_of of_rows(enum kind kind, uint64_t row_bytes, uint64_t rows)
{
	uint64_t bytes = row_bytes * rows;

	if (kind == NOT_HELD || !bytes)
		return (struct cost_of){.function = NOT_HELD, .shape = bytes};
	return (struct cost_of){
		.function = kind,
		.shape = launch_hash((uint64_t[]){size_class(bytes), log2_of(row_bytes)}, 1),
		.blocks = (bytes - 1) / 1024 + 1,
	};
}

static struct cost_of of_bytes(enum kind kind, uint64_t bytes)
{
	return of_rows(kind, 1, bytes);
}

/* Also true for managed memory. */
static bool is_on_device(CUdeviceptr address)
{
	unsigned type = CU_MEMORYTYPE_HOST;

	return cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
		       CUDA_SUCCESS &&
	       type == CU_MEMORYTYPE_DEVICE;
}

static int device_of(CUdeviceptr address)
{
	int device = -1;

	cuda.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
	return device;
}

static bool on_one_device(CUdeviceptr a, CUdeviceptr b)
{
	return quota_only_device() >= 0 || device_of(a) == device_of(b);
}

/* Both addresses are on devices. */
static struct cost_of of_copy(CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
	return of_bytes(on_one_device(to, from) ? COPY : NOT_HELD, bytes);
}

/* Each address may be on a device or on the host. */
static struct cost_of of_unified(CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
	if (!is_on_device(to) || !is_on_device(from))
		return of_bytes(NOT_HELD, bytes);
	return of_copy(to, from, bytes);
}

/* The source or the destination of a copy that a descriptor describes. */
struct side {
	unsigned type; /* CU_MEMORYTYPE_… */
	CUdeviceptr address;
};

static bool side_is_held(const struct side *side)
{
	return side->type == CU_MEMORYTYPE_DEVICE || side->type == CU_MEMORYTYPE_ARRAY ||
	       (side->type == CU_MEMORYTYPE_UNIFIED && is_on_device(side->address));
}

/* An array is taken to be on the device of the other side, as nearly all are. */
static struct cost_of of_sides(struct side to, struct side from, uint64_t row_bytes, uint64_t rows)
{
	bool held = side_is_held(&to) && side_is_held(&from);

	if (held && to.type != CU_MEMORYTYPE_ARRAY && from.type != CU_MEMORYTYPE_ARRAY)
		held = on_one_device(to.address, from.address);
	return of_rows(held ? COPY_ROWS : NOT_HELD, row_bytes, rows);
}

/* The cost_of of a descriptor, of any version of the structure. */
#define OF_RECTANGLE(copy, rows)                                                                  \
	(copy ? of_sides((struct side){copy->dstMemoryType, copy->dstDevice},                     \
			 (struct side){copy->srcMemoryType, copy->srcDevice}, copy->WidthInBytes, \
			 rows)                                                                    \
	      : of_bytes(NOT_HELD, 0))
#define OF_2D OF_RECTANGLE(pCopy, (uint64_t)pCopy->Height)
#define OF_3D OF_RECTANGLE(pCopy, (uint64_t)pCopy->Height * pCopy->Depth)

/* -- hooks ------------------------------------------------------------------------------------- */

/* Lets a copy proceed that is not throttled. It does not count among the launches after which the
 * clock is read. It is never refused, as an application may need it to save its results. */
static void let_by(struct launch *launch, bool waits)
{
	launch->pass.meter = NULL;
	launch->loads = NULL;
	launch->waits = waits;
	pace_undo_count();
	cuda_bind();
}

static CUresult begin_async(struct launch *launch, CUstream stream, bool per_thread,
			    const struct cost_of *what)
{
	if (what->function != NOT_HELD)
		return launch_begin(launch, stream, per_thread, what);
	let_by(launch, false);
	launch_will_copy(stream, per_thread, what->shape);
	return CUDA_SUCCESS;
}

/* A copy to or from the host by one of these functions waits for the stream. */
static CUresult begin_plain(struct launch *launch, CUstream stream, bool per_thread,
			    const struct cost_of *what)
{
	if (what->function != NOT_HELD)
		return launch_begin(launch, stream, per_thread, what);
	let_by(launch, true);
	launch_will_wait_for(stream, per_thread);
	return CUDA_SUCCESS;
}

/* A copy to memory of the host that is not page-locked waits for the stream, although its name says
 * Async. */
static CUresult begin_to_host(struct launch *launch, CUstream stream, bool per_thread,
			      const struct cost_of *what)
{
	let_by(launch, true);
	launch_will_wait(false);
	launch_will_copy(stream, per_thread, what->shape);
	return CUDA_SUCCESS;
}

/* PLAIN: a function that uses the default stream. ASYNC: one with a stream parameter. PLAIN_2 and
 * ASYNC_2: with a second flavour, in which NULL means the default stream of the thread. */
#define PLAIN(name, of, parameters, arguments) \
	LAUNCH_HOOK(begin_plain, name, NULL, false, of, parameters, arguments)
#define ASYNC(name, of, parameters, arguments)                                                    \
	LAUNCH_HOOK(begin_async, name, hStream, false, of, (INSIDE parameters, CUstream hStream), \
		    (INSIDE arguments, hStream))
#define PLAIN_2(name, of, parameters, arguments) \
	PLAIN(name, of, parameters, arguments)   \
	LAUNCH_HOOK(begin_plain, name##_ptds, NULL, true, of, parameters, arguments)
#define ASYNC_2(name, of, parameters, arguments)                 \
	ASYNC(name, of, parameters, arguments)                   \
	LAUNCH_HOOK(begin_async, name##_ptsz, hStream, true, of, \
		    (INSIDE parameters, CUstream hStream), (INSIDE arguments, hStream))
#define INSIDE(...) __VA_ARGS__

/* -- fills ------------------------------------------------------------------------------------- */

#define OF_LINE(bits) of_bytes(FILL, (uint64_t)N *(bits / 8))
#define OF_ROWS(bits) of_rows(FILL_ROWS, (uint64_t)Width *(bits / 8), Height)

#define LINE(address, size, type) (address dstDevice, type value, size N)
#define ROWS(address, size, type) \
	(address dstDevice, size dstPitch, type value, size Width, size Height)
#define THE_LINE (dstDevice, value, N)
#define THE_ROWS (dstDevice, dstPitch, value, Width, Height)

#define FILLS(bits, type)                                                                         \
	PLAIN(cuMemsetD##bits, OF_LINE(bits), LINE(CUdeviceptr_v1, unsigned, type), THE_LINE)     \
	PLAIN_2(cuMemsetD##bits##_v2, OF_LINE(bits), LINE(CUdeviceptr, size_t, type), THE_LINE)   \
	ASYNC_2(cuMemsetD##bits##Async, OF_LINE(bits), LINE(CUdeviceptr, size_t, type), THE_LINE) \
	PLAIN(cuMemsetD2D##bits, OF_ROWS(bits), ROWS(CUdeviceptr_v1, unsigned, type), THE_ROWS)   \
	PLAIN_2(cuMemsetD2D##bits##_v2, OF_ROWS(bits), ROWS(CUdeviceptr, size_t, type), THE_ROWS) \
	ASYNC_2(cuMemsetD2D##bits##Async, OF_ROWS(bits), ROWS(CUdeviceptr, size_t, type), THE_ROWS)

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)

/* -- copies ------------------------------------------------------------------------------------ */

#define OF_ADDRESSES of_copy(dst, src, ByteCount)
#define OF_UNIFIED   of_unified(dst, src, ByteCount)
#define OF_ARRAY     of_bytes(COPY, ByteCount)

#define ADDRESSES(address, size) (address dst, address src, size ByteCount)
#define THE_ADDRESSES            (dst, src, ByteCount)

PLAIN_2(cuMemcpy, OF_UNIFIED, ADDRESSES(CUdeviceptr, size_t), THE_ADDRESSES)
ASYNC_2(cuMemcpyAsync, OF_UNIFIED, ADDRESSES(CUdeviceptr, size_t), THE_ADDRESSES)
PLAIN(cuMemcpyDtoD, OF_ADDRESSES, ADDRESSES(CUdeviceptr_v1, unsigned), THE_ADDRESSES)
PLAIN_2(cuMemcpyDtoD_v2, OF_ADDRESSES, ADDRESSES(CUdeviceptr, size_t), THE_ADDRESSES)
ASYNC(cuMemcpyDtoDAsync, OF_ADDRESSES, ADDRESSES(CUdeviceptr_v1, unsigned), THE_ADDRESSES)
ASYNC_2(cuMemcpyDtoDAsync_v2, OF_ADDRESSES, ADDRESSES(CUdeviceptr, size_t), THE_ADDRESSES)

#define OF_HOST of_bytes(NOT_HELD, ByteCount)

#define TO_DEVICE (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
#define TO_HOST   (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)

PLAIN_2(cuMemcpyHtoD_v2, OF_HOST, TO_DEVICE, (dstDevice, srcHost, ByteCount))
ASYNC_2(cuMemcpyHtoDAsync_v2, OF_HOST, TO_DEVICE, (dstDevice, srcHost, ByteCount))
PLAIN_2(cuMemcpyDtoH_v2, OF_HOST, TO_HOST, (dstHost, srcDevice, ByteCount))
LAUNCH_HOOK(begin_to_host, cuMemcpyDtoHAsync_v2, hStream, false, OF_HOST,
	    (INSIDE TO_HOST, CUstream hStream), (dstHost, srcDevice, ByteCount, hStream))
LAUNCH_HOOK(begin_to_host, cuMemcpyDtoHAsync_v2_ptsz, hStream, true, OF_HOST,
	    (INSIDE TO_HOST, CUstream hStream), (dstHost, srcDevice, ByteCount, hStream))

#define TO_ARRAY(address, size)   (CUarray dst, size dstOffset, address src, size ByteCount)
#define FROM_ARRAY(address, size) (address dst, CUarray src, size srcOffset, size ByteCount)

#define ARRAYS(size) (CUarray dst, size dstOffset, CUarray src, size srcOffset, size ByteCount)

PLAIN(cuMemcpyDtoA, OF_ARRAY, TO_ARRAY(CUdeviceptr_v1, unsigned), (dst, dstOffset, src, ByteCount))
PLAIN_2(cuMemcpyDtoA_v2, OF_ARRAY, TO_ARRAY(CUdeviceptr, size_t), (dst, dstOffset, src, ByteCount))
PLAIN(cuMemcpyAtoD, OF_ARRAY, FROM_ARRAY(CUdeviceptr_v1, unsigned),
      (dst, src, srcOffset, ByteCount))
PLAIN_2(cuMemcpyAtoD_v2, OF_ARRAY, FROM_ARRAY(CUdeviceptr, size_t),
	(dst, src, srcOffset, ByteCount))
PLAIN(cuMemcpyAtoA, OF_ARRAY, ARRAYS(unsigned), (dst, dstOffset, src, srcOffset, ByteCount))
PLAIN_2(cuMemcpyAtoA_v2, OF_ARRAY, ARRAYS(size_t), (dst, dstOffset, src, srcOffset, ByteCount))

PLAIN(cuMemcpy2D, OF_2D, (const CUDA_MEMCPY2D_v1 *pCopy), (pCopy))
PLAIN_2(cuMemcpy2D_v2, OF_2D, (const CUDA_MEMCPY2D *pCopy), (pCopy))
PLAIN(cuMemcpy2DUnaligned, OF_2D, (const CUDA_MEMCPY2D_v1 *pCopy), (pCopy))
PLAIN_2(cuMemcpy2DUnaligned_v2, OF_2D, (const CUDA_MEMCPY2D *pCopy), (pCopy))
ASYNC(cuMemcpy2DAsync, OF_2D, (const CUDA_MEMCPY2D_v1 *pCopy), (pCopy))
ASYNC_2(cuMemcpy2DAsync_v2, OF_2D, (const CUDA_MEMCPY2D *pCopy), (pCopy))
PLAIN(cuMemcpy3D, OF_3D, (const CUDA_MEMCPY3D_v1 *pCopy), (pCopy))
PLAIN_2(cuMemcpy3D_v2, OF_3D, (const CUDA_MEMCPY3D *pCopy), (pCopy))
ASYNC(cuMemcpy3DAsync, OF_3D, (const CUDA_MEMCPY3D_v1 *pCopy), (pCopy))
ASYNC_2(cuMemcpy3DAsync_v2, OF_3D, (const CUDA_MEMCPY3D *pCopy), (pCopy))
