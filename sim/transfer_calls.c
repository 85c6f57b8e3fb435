/*
 * The driver's functions that copy and fill, over transfer.c. Each comes in a version for 32-bit
 * pointers, one for a stream, and one for either in each thread's own default stream.
 */
#include "sim.h"

/* PLAIN_2 defines a function for the default stream, and its variant for the default stream of the
 * thread. The next macro does the same for functions with a stream parameter. */
#define PLAIN_2(name, parameters, call, ...)                     \
	CUresult name parameters                                 \
	{                                                        \
		return call(__func__, NULL, false, __VA_ARGS__); \
	}                                                        \
	CUresult name##_ptds parameters                          \
	{                                                        \
		return call(__func__, NULL, true, __VA_ARGS__);  \
	}
#define ASYNC_2(name, parameters, call, ...)                        \
	CUresult name(INSIDE parameters, CUstream hStream)          \
	{                                                           \
		return call(__func__, hStream, false, __VA_ARGS__); \
	}                                                           \
	CUresult name##_ptsz(INSIDE parameters, CUstream hStream)   \
	{                                                           \
		return call(__func__, hStream, true, __VA_ARGS__);  \
	}
/* PLAIN defines an old function, which has no such variant. */
#define PLAIN(name, parameters, call, ...)                       \
	CUresult name parameters                                 \
	{                                                        \
		return call(__func__, NULL, false, __VA_ARGS__); \
	}
#define ASYNC(name, parameters, call, ...)                          \
	CUresult name(INSIDE parameters, CUstream hStream)          \
	{                                                           \
		return call(__func__, hStream, false, __VA_ARGS__); \
	}
#define INSIDE(...) __VA_ARGS__

/* ---- fills */

static CUresult fill(const char *function, CUstream stream, bool per_thread, uint64_t target,
		     size_t pitch, unsigned value, unsigned element_bytes, size_t width,
		     size_t height)
{
	struct graph_work work = {
		.type = CU_GRAPH_NODE_TYPE_MEMSET,
		.target = {.address = target, .pitch = pitch, .on_device = true},
		.rows = height,
		.slices = 1,
		.value = value,
		.element_bytes = element_bytes,
	};

	if (__builtin_mul_overflow(width, element_bytes, &work.bytes))
		work.bytes = SIZE_MAX;
	return transfer_submit(function, stream, per_thread, &work);
}

#define LINE(address, size, type) (address to, type value, size n)
#define ROWS(address, size, type) (address to, size pitch, type value, size width, size height)

#define FILLS(bits, type)                                                                          \
	PLAIN(cuMemsetD##bits, LINE(CUdeviceptr_v1, unsigned, type), fill, to, 0, value, bits / 8, \
	      n, 1)                                                                                \
	PLAIN_2(cuMemsetD##bits##_v2, LINE(CUdeviceptr, size_t, type), fill, to, 0, value,         \
		bits / 8, n, 1)                                                                    \
	ASYNC_2(cuMemsetD##bits##Async, LINE(CUdeviceptr, size_t, type), fill, to, 0, value,       \
		bits / 8, n, 1)                                                                    \
	PLAIN(cuMemsetD2D##bits, ROWS(CUdeviceptr_v1, unsigned, type), fill, to, pitch, value,     \
	      bits / 8, width, height)                                                             \
	PLAIN_2(cuMemsetD2D##bits##_v2, ROWS(CUdeviceptr, size_t, type), fill, to, pitch, value,   \
		bits / 8, width, height)                                                           \
	ASYNC_2(cuMemsetD2D##bits##Async, ROWS(CUdeviceptr, size_t, type), fill, to, pitch, value, \
		bits / 8, width, height)

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)

/* ---- copies of bytes in a row */

static struct transfer_side anywhere(uint64_t address)
{
	return (struct transfer_side){.address = address};
}

static struct transfer_side host(const void *address)
{
	return anywhere((uintptr_t)address);
}

static struct transfer_side device(uint64_t address)
{
	return (struct transfer_side){.address = address, .on_device = true};
}

/* A side that is an array. It has no address, as arrays have no contents here. */
static struct transfer_side array(CUarray which)
{
	return (struct transfer_side){.array = which};
}

static CUresult copy(const char *function, CUstream stream, bool per_thread,
		     struct transfer_side target, struct transfer_side source, size_t bytes)
{
	struct graph_work work = {
		.type = CU_GRAPH_NODE_TYPE_MEMCPY,
		.target = target,
		.source = source,
		.bytes = bytes,
		.rows = 1,
		.slices = 1,
	};

	return transfer_submit(function, stream, per_thread, &work);
}

#define BYTES(to_type, from_type, size) (to_type to, from_type from, size bytes)

PLAIN_2(cuMemcpy, BYTES(CUdeviceptr, CUdeviceptr, size_t), copy, anywhere(to), anywhere(from),
	bytes)
ASYNC_2(cuMemcpyAsync, BYTES(CUdeviceptr, CUdeviceptr, size_t), copy, anywhere(to), anywhere(from),
	bytes)
PLAIN_2(cuMemcpyHtoD_v2, BYTES(CUdeviceptr, const void *, size_t), copy, device(to), host(from),
	bytes)
ASYNC_2(cuMemcpyHtoDAsync_v2, BYTES(CUdeviceptr, const void *, size_t), copy, device(to),
	host(from), bytes)
PLAIN_2(cuMemcpyDtoH_v2, BYTES(void *, CUdeviceptr, size_t), copy, host(to), device(from), bytes)
ASYNC_2(cuMemcpyDtoHAsync_v2, BYTES(void *, CUdeviceptr, size_t), copy, host(to), device(from),
	bytes)
PLAIN(cuMemcpyDtoD, BYTES(CUdeviceptr_v1, CUdeviceptr_v1, unsigned), copy, device(to), device(from),
      bytes)
PLAIN_2(cuMemcpyDtoD_v2, BYTES(CUdeviceptr, CUdeviceptr, size_t), copy, device(to), device(from),
	bytes)
ASYNC(cuMemcpyDtoDAsync, BYTES(CUdeviceptr_v1, CUdeviceptr_v1, unsigned), copy, device(to),
      device(from), bytes)
ASYNC_2(cuMemcpyDtoDAsync_v2, BYTES(CUdeviceptr, CUdeviceptr, size_t), copy, device(to),
	device(from), bytes)

/* Offsets in arrays are unused, as arrays have no contents. */
#define TO_ARRAY(address, size) \
	(CUarray to, size offset __attribute__((unused)), address from, size bytes)
#define FROM_ARRAY(address, size) \
	(address to, CUarray from, size offset __attribute__((unused)), size bytes)
#define ARRAYS(size)                                                       \
	(CUarray to, size to_offset __attribute__((unused)), CUarray from, \
	 size from_offset __attribute__((unused)), size bytes)

PLAIN(cuMemcpyDtoA, TO_ARRAY(CUdeviceptr_v1, unsigned), copy, array(to), device(from), bytes)
PLAIN_2(cuMemcpyDtoA_v2, TO_ARRAY(CUdeviceptr, size_t), copy, array(to), device(from), bytes)
PLAIN(cuMemcpyAtoD, FROM_ARRAY(CUdeviceptr_v1, unsigned), copy, device(to), array(from), bytes)
PLAIN_2(cuMemcpyAtoD_v2, FROM_ARRAY(CUdeviceptr, size_t), copy, device(to), array(from), bytes)
PLAIN_2(cuMemcpyHtoA_v2, TO_ARRAY(const void *, size_t), copy, array(to), host(from), bytes)
PLAIN_2(cuMemcpyAtoH_v2, FROM_ARRAY(void *, size_t), copy, host(to), array(from), bytes)
PLAIN(cuMemcpyAtoA, ARRAYS(unsigned), copy, array(to), array(from), bytes)
PLAIN_2(cuMemcpyAtoA_v2, ARRAYS(size_t), copy, array(to), array(from), bytes)

/* ---- copies by a descriptor */

static struct transfer_side side(unsigned type, const void *host_address, uint64_t address,
				 CUarray which, size_t pitch, size_t height)
{
	struct transfer_side side = type == CU_MEMORYTYPE_ARRAY    ? array(which)
				    : type == CU_MEMORYTYPE_HOST   ? host(host_address)
				    : type == CU_MEMORYTYPE_DEVICE ? device(address)
								   : anywhere(address);

	side.pitch = pitch;
	side.slice = pitch * height;
	return side;
}

/* Moves a side with an address to the descriptor's origin in it. */
static void side_move(struct transfer_side *side, size_t x, size_t y, size_t z)
{
	side->address += x + y * side->pitch + z * side->slice;
}

void transfer_describe(const CUDA_MEMCPY3D *what, struct graph_work *ret_work)
{
	*ret_work = (struct graph_work){.type = CU_GRAPH_NODE_TYPE_MEMCPY};
	ret_work->target = side(what->dstMemoryType, what->dstHost, what->dstDevice, what->dstArray,
				what->dstPitch, what->dstHeight);
	ret_work->source = side(what->srcMemoryType, what->srcHost, what->srcDevice, what->srcArray,
				what->srcPitch, what->srcHeight);
	side_move(&ret_work->target, what->dstXInBytes, what->dstY, what->dstZ);
	side_move(&ret_work->source, what->srcXInBytes, what->srcY, what->srcZ);
	ret_work->bytes = what->WidthInBytes;
	ret_work->rows = what->Height;
	ret_work->slices = what->Depth;
}

static CUresult copy_rows(const char *function, CUstream stream, bool per_thread,
			  const CUDA_MEMCPY3D *what)
{
	struct graph_work work = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
				  .bytes = 1,
				  .rows = 1,
				  .slices = 1}; /* from NULL */

	if (what)
		transfer_describe(what, &work);
	return transfer_submit(function, stream, per_thread, &work);
}

/* Converts a descriptor of any version to the widest one. */
#define FLAT(c)                                                                                    \
	.srcXInBytes = (c)->srcXInBytes, .srcY = (c)->srcY, .srcMemoryType = (c)->srcMemoryType,   \
	.srcHost = (c)->srcHost, .srcDevice = (c)->srcDevice, .srcArray = (c)->srcArray,           \
	.srcPitch = (c)->srcPitch, .dstXInBytes = (c)->dstXInBytes, .dstY = (c)->dstY,             \
	.dstMemoryType = (c)->dstMemoryType, .dstHost = (c)->dstHost, .dstDevice = (c)->dstDevice, \
	.dstArray = (c)->dstArray, .dstPitch = (c)->dstPitch, .WidthInBytes = (c)->WidthInBytes,   \
	.Height = (c)->Height
#define DEEP(c)                                                            \
	.srcZ = (c)->srcZ, .srcHeight = (c)->srcHeight, .dstZ = (c)->dstZ, \
	.dstHeight = (c)->dstHeight, .Depth = (c)->Depth

#define OF_2D(c) (c) ? &(const CUDA_MEMCPY3D){FLAT(c), .Depth = 1} : NULL
#define OF_3D(c) (c) ? &(const CUDA_MEMCPY3D){FLAT(c), DEEP(c)} : NULL

PLAIN(cuMemcpy2D, (const CUDA_MEMCPY2D_v1 *what), copy_rows, OF_2D(what))
PLAIN_2(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *what), copy_rows, OF_2D(what))
PLAIN(cuMemcpy2DUnaligned, (const CUDA_MEMCPY2D_v1 *what), copy_rows, OF_2D(what))
PLAIN_2(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *what), copy_rows, OF_2D(what))
ASYNC(cuMemcpy2DAsync, (const CUDA_MEMCPY2D_v1 *what), copy_rows, OF_2D(what))
ASYNC_2(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *what), copy_rows, OF_2D(what))
PLAIN(cuMemcpy3D, (const CUDA_MEMCPY3D_v1 *what), copy_rows, OF_3D(what))
PLAIN_2(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *what), copy_rows, OF_3D(what))
ASYNC(cuMemcpy3DAsync, (const CUDA_MEMCPY3D_v1 *what), copy_rows, OF_3D(what))
ASYNC_2(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *what), copy_rows, OF_3D(what))
