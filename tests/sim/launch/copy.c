/* See copy.h. */
#include "copy.h"

CUdeviceptr here, there;
unsigned char *page_locked;
CUarray array_here, array_there;

/* -- how each is called ----------------------------------------------------------------------- */

#define CU_HOOK(name, class, parameters, arguments) typedef CUresult type_##name parameters;
#include "cuda.def"

#define LOW(address) ((CUdeviceptr_v1)(address))

/* Rows that lie apart, as many bytes in all. */
enum {
	ROW_BYTES = 32,
	PITCH = 64,
	ROWS = 4,
	SLICES = 2,
};
_Static_assert(ROW_BYTES *ROWS *SLICES == COPY_BYTES, "as much as the others");

#define CALL(id, like, ...)                                    \
	static CUresult id(void *function, CUstream where)     \
	{                                                      \
		(void)where;                                   \
		return ((type_##like *)function)(__VA_ARGS__); \
	}

#define FILLS(bits, value)                                                                         \
	CALL(old_fill_##bits, cuMemsetD##bits, LOW(here), value, COPY_BYTES * 8 / bits)            \
	CALL(fill_##bits, cuMemsetD##bits##_v2, here, value, COPY_BYTES * 8 / bits)                \
	CALL(async_fill_##bits, cuMemsetD##bits##Async, here, value, COPY_BYTES * 8 / bits, where) \
	CALL(old_rows_##bits, cuMemsetD2D##bits, LOW(here), PITCH, value, ROW_BYTES * 8 / bits,    \
	     ROWS * SLICES)                                                                        \
	CALL(rows_##bits, cuMemsetD2D##bits##_v2, here, PITCH, value, ROW_BYTES * 8 / bits,        \
	     ROWS * SLICES)                                                                        \
	CALL(async_rows_##bits, cuMemsetD2D##bits##Async, here, PITCH, value,                      \
	     ROW_BYTES * 8 / bits, ROWS * SLICES, where)

FILLS(8, COPY_MARK)
FILLS(16, COPY_MARK * 0x101)
FILLS(32, COPY_MARK * 0x1010101)

CALL(unified, cuMemcpy, here, there, COPY_BYTES)
CALL(async_unified, cuMemcpyAsync, here, there, COPY_BYTES, where)
CALL(old_d_d, cuMemcpyDtoD, LOW(here), LOW(there), COPY_BYTES)
CALL(d_d, cuMemcpyDtoD_v2, here, there, COPY_BYTES)
CALL(old_async_d_d, cuMemcpyDtoDAsync, LOW(here), LOW(there), COPY_BYTES, where)
CALL(async_d_d, cuMemcpyDtoDAsync_v2, here, there, COPY_BYTES, where)
CALL(old_d_a, cuMemcpyDtoA, array_here, 0, LOW(there), COPY_BYTES)
CALL(d_a, cuMemcpyDtoA_v2, array_here, 0, there, COPY_BYTES)
CALL(old_a_d, cuMemcpyAtoD, LOW(here), array_there, 0, COPY_BYTES)
CALL(a_d, cuMemcpyAtoD_v2, here, array_there, 0, COPY_BYTES)
CALL(old_a_a, cuMemcpyAtoA, array_here, 0, array_there, 0, COPY_BYTES)
CALL(a_a, cuMemcpyAtoA_v2, array_here, 0, array_there, 0, COPY_BYTES)

#define DESCRIBED(address)                                                                      \
	.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = address(there), .srcPitch = PITCH, \
	.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = address(here), .dstPitch = PITCH,   \
	.WidthInBytes = ROW_BYTES
#define NEW(address) (address)

#define PLANE(type, address)                                \
	&(const type)                                       \
	{                                                   \
		DESCRIBED(address), .Height = ROWS * SLICES \
	}
#define SOLID(type, address)                                                            \
	&(const type)                                                                   \
	{                                                                               \
		DESCRIBED(address), .Height = ROWS, .Depth = SLICES, .srcHeight = ROWS, \
				    .dstHeight = ROWS                                   \
	}

CALL(old_plane, cuMemcpy2D, PLANE(CUDA_MEMCPY2D_v1, LOW))
CALL(plane, cuMemcpy2D_v2, PLANE(CUDA_MEMCPY2D, NEW))
CALL(old_async_plane, cuMemcpy2DAsync, PLANE(CUDA_MEMCPY2D_v1, LOW), where)
CALL(async_plane, cuMemcpy2DAsync_v2, PLANE(CUDA_MEMCPY2D, NEW), where)
CALL(old_solid, cuMemcpy3D, SOLID(CUDA_MEMCPY3D_v1, LOW))
CALL(solid, cuMemcpy3D_v2, SOLID(CUDA_MEMCPY3D, NEW))
CALL(old_async_solid, cuMemcpy3DAsync, SOLID(CUDA_MEMCPY3D_v1, LOW), where)
CALL(async_solid, cuMemcpy3DAsync_v2, SOLID(CUDA_MEMCPY3D, NEW), where)

/* -- all of them ------------------------------------------------------------------------------ */

/* In the default stream, and the thread's own; in one that is given; and the oldest. */
#define PLAIN(name, plain, call)                                  \
	{                                                         \
#name, #plain, (void *)name, call, false, true, 0 \
	}
#define PLAIN_OWN(name, plain, call)                             \
	{                                                        \
#name, #plain, (void *)name, call, true, true, 0 \
	}
#define STREAM(name, plain, call)                                  \
	{                                                          \
#name, #plain, (void *)name, call, false, false, 0 \
	}
#define STREAM_OWN(name, plain, call)                             \
	{                                                         \
#name, #plain, (void *)name, call, true, false, 0 \
	}
#define OLD(name, call)                                             \
	{                                                           \
#name, #name, (void *)name, call, false, true, 3010 \
	}
#define OLD_STREAM(name, call)                                       \
	{                                                            \
#name, #name, (void *)name, call, false, false, 3010 \
	}

const struct launcher copiers[] = {
	OLD(cuMemsetD8, old_fill_8),
	PLAIN(cuMemsetD8_v2, cuMemsetD8, fill_8),
	PLAIN_OWN(cuMemsetD8_v2_ptds, cuMemsetD8, fill_8),
	STREAM(cuMemsetD8Async, cuMemsetD8Async, async_fill_8),
	STREAM_OWN(cuMemsetD8Async_ptsz, cuMemsetD8Async, async_fill_8),
	OLD(cuMemsetD2D8, old_rows_8),
	PLAIN(cuMemsetD2D8_v2, cuMemsetD2D8, rows_8),
	PLAIN_OWN(cuMemsetD2D8_v2_ptds, cuMemsetD2D8, rows_8),
	STREAM(cuMemsetD2D8Async, cuMemsetD2D8Async, async_rows_8),
	STREAM_OWN(cuMemsetD2D8Async_ptsz, cuMemsetD2D8Async, async_rows_8),
	OLD(cuMemsetD16, old_fill_16),
	PLAIN(cuMemsetD16_v2, cuMemsetD16, fill_16),
	PLAIN_OWN(cuMemsetD16_v2_ptds, cuMemsetD16, fill_16),
	STREAM(cuMemsetD16Async, cuMemsetD16Async, async_fill_16),
	STREAM_OWN(cuMemsetD16Async_ptsz, cuMemsetD16Async, async_fill_16),
	OLD(cuMemsetD2D16, old_rows_16),
	PLAIN(cuMemsetD2D16_v2, cuMemsetD2D16, rows_16),
	PLAIN_OWN(cuMemsetD2D16_v2_ptds, cuMemsetD2D16, rows_16),
	STREAM(cuMemsetD2D16Async, cuMemsetD2D16Async, async_rows_16),
	STREAM_OWN(cuMemsetD2D16Async_ptsz, cuMemsetD2D16Async, async_rows_16),
	OLD(cuMemsetD32, old_fill_32),
	PLAIN(cuMemsetD32_v2, cuMemsetD32, fill_32),
	PLAIN_OWN(cuMemsetD32_v2_ptds, cuMemsetD32, fill_32),
	STREAM(cuMemsetD32Async, cuMemsetD32Async, async_fill_32),
	STREAM_OWN(cuMemsetD32Async_ptsz, cuMemsetD32Async, async_fill_32),
	OLD(cuMemsetD2D32, old_rows_32),
	PLAIN(cuMemsetD2D32_v2, cuMemsetD2D32, rows_32),
	PLAIN_OWN(cuMemsetD2D32_v2_ptds, cuMemsetD2D32, rows_32),
	STREAM(cuMemsetD2D32Async, cuMemsetD2D32Async, async_rows_32),
	STREAM_OWN(cuMemsetD2D32Async_ptsz, cuMemsetD2D32Async, async_rows_32),
	PLAIN(cuMemcpy, cuMemcpy, unified),
	PLAIN_OWN(cuMemcpy_ptds, cuMemcpy, unified),
	STREAM(cuMemcpyAsync, cuMemcpyAsync, async_unified),
	STREAM_OWN(cuMemcpyAsync_ptsz, cuMemcpyAsync, async_unified),
	OLD(cuMemcpyDtoD, old_d_d),
	PLAIN(cuMemcpyDtoD_v2, cuMemcpyDtoD, d_d),
	PLAIN_OWN(cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD, d_d),
	OLD_STREAM(cuMemcpyDtoDAsync, old_async_d_d),
	STREAM(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync, async_d_d),
	STREAM_OWN(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync, async_d_d),
	OLD(cuMemcpyDtoA, old_d_a),
	PLAIN(cuMemcpyDtoA_v2, cuMemcpyDtoA, d_a),
	PLAIN_OWN(cuMemcpyDtoA_v2_ptds, cuMemcpyDtoA, d_a),
	OLD(cuMemcpyAtoD, old_a_d),
	PLAIN(cuMemcpyAtoD_v2, cuMemcpyAtoD, a_d),
	PLAIN_OWN(cuMemcpyAtoD_v2_ptds, cuMemcpyAtoD, a_d),
	OLD(cuMemcpyAtoA, old_a_a),
	PLAIN(cuMemcpyAtoA_v2, cuMemcpyAtoA, a_a),
	PLAIN_OWN(cuMemcpyAtoA_v2_ptds, cuMemcpyAtoA, a_a),
	OLD(cuMemcpy2D, old_plane),
	PLAIN(cuMemcpy2D_v2, cuMemcpy2D, plane),
	PLAIN_OWN(cuMemcpy2D_v2_ptds, cuMemcpy2D, plane),
	OLD(cuMemcpy2DUnaligned, old_plane),
	PLAIN(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned, plane),
	PLAIN_OWN(cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2DUnaligned, plane),
	OLD_STREAM(cuMemcpy2DAsync, old_async_plane),
	STREAM(cuMemcpy2DAsync_v2, cuMemcpy2DAsync, async_plane),
	STREAM_OWN(cuMemcpy2DAsync_v2_ptsz, cuMemcpy2DAsync, async_plane),
	OLD(cuMemcpy3D, old_solid),
	PLAIN(cuMemcpy3D_v2, cuMemcpy3D, solid),
	PLAIN_OWN(cuMemcpy3D_v2_ptds, cuMemcpy3D, solid),
	OLD_STREAM(cuMemcpy3DAsync, old_async_solid),
	STREAM(cuMemcpy3DAsync_v2, cuMemcpy3DAsync, async_solid),
	STREAM_OWN(cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DAsync, async_solid),
};

_Static_assert(sizeof(copiers) / sizeof(*copiers) == COPIERS, "copy.h says how many");

/* -- a process that copies -------------------------------------------------------------------- */

static CUdeviceptr take_low(void)
{
	CUdeviceptr_v1 address = 0;

	CHECK_OK(cuMemAlloc(&address, MIB));
	return address;
}

static CUarray take_array(void)
{
	const CUDA_ARRAY_DESCRIPTOR line = {COPY_BYTES, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
	CUarray array = NULL;

	CHECK_OK(cuArrayCreate_v2(&array, &line));
	return array;
}

void copies_start(const char *limit)
{
	launch_start(limit);
	here = take_low();
	there = take_low();
	array_here = take_array();
	array_there = take_array();
	CHECK_OK(cuMemAllocHost_v2((void **)&page_locked, MIB));
	memset(page_locked, COPY_MARK, MIB);
	CHECK_OK(cuMemcpyHtoD_v2(there, page_locked, MIB));
}

static CUresult to_device(unsigned way, unsigned char *host, size_t bytes)
{
	switch (way) {
	case 0:
		return cuMemcpyHtoD_v2(here, host, bytes);
	case 1:
		return cuMemcpyHtoD_v2_ptds(here, host, bytes);
	case 2:
		return cuMemcpyHtoDAsync_v2(here, host, bytes, stream);
	default:
		return cuMemcpyHtoDAsync_v2_ptsz(here, host, bytes, stream);
	}
}

static CUresult to_host(unsigned way, unsigned char *host, size_t bytes)
{
	switch (way) {
	case 0:
		return cuMemcpyDtoH_v2(host, here, bytes);
	case 1:
		return cuMemcpyDtoH_v2_ptds(host, here, bytes);
	case 2:
		return cuMemcpyDtoHAsync_v2(host, here, bytes, stream);
	default:
		return cuMemcpyDtoHAsync_v2_ptsz(host, here, bytes, stream);
	}
}

void copies_with_host(unsigned char *host, size_t bytes)
{
	for (unsigned way = 0; way < 4; way++) {
		memset(host, 1 + (int)way, bytes);
		CHECK_OK(to_device(way, host, bytes));
		CHECK_OK(cuStreamSynchronize(stream));
		memset(host, 0, bytes);
		CHECK_OK(to_host(way, host, bytes));
		CHECK_OK(cuStreamSynchronize(stream));
		CHECK_EQUAL(host[0], 1 + way);
		CHECK_EQUAL(host[bytes - 1], 1 + way);
	}
}
