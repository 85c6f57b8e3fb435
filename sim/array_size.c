/*
 * The size of an array. The GPU keeps an array in tiles of 64 bytes by up to 128 rows: the height
 * of a tile is the least power of two times 8 that covers all rows. A tile of a three-dimensional
 * array is 16 rows high and up to 8 deep. Layers, the faces of cubes and the levels of mipmaps lie
 * one after the other, and the sum is rounded up to 64 KiB. All this was measured on a real driver;
 * for three dimensions, from a single figure.
 */
#include "sim.h"

enum {
	TILE_BYTES = 64,
	TILE_ROWS_MIN = 8,
	TILE_ROWS_MAX = 128,
	TILE_ROWS_3D = 16,
	TILE_DEPTH_3D = 8,
	BLOCK_TEXELS = 4, /* the width and height of a compressed block */
	WIDTH_MAX = 131072,
	HEIGHT_MAX = 65536,
	DEPTH_MAX = 16384,
};

/* The bytes of a texel, or of a compressed block; 0: there is no such format. */
static unsigned element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *desc, bool *ret_compressed)
{
	static const unsigned char packed[] = {1, 2, 4, 2, 4, 8, 1, 2, 4, 2, 4, 8};
	const unsigned bc1 = 0x91, bc2 = 0x93, bc4 = 0x97, bc5 = 0x99, bc7_srgb = 0x9e;
	const unsigned packed_first = 0xc0, packed_10_10_10_2 = 0x50;
	unsigned format = desc->Format, channels = desc->NumChannels;

	*ret_compressed = format >= bc1 && format <= bc7_srgb;
	if (*ret_compressed)
		return format < bc2 || (format >= bc4 && format < bc5) ? 8 : 16;
	if (format >= packed_first && format - packed_first < sizeof packed)
		return packed[format - packed_first];
	if (format == packed_10_10_10_2)
		return 4;
	if (channels != 1 && channels != 2 && channels != 4)
		return 0;
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return channels;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2 * channels;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4 * channels;
	default:
		return 0;
	}
}

static bool shape_valid(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	bool layered = desc->Flags & CUDA_ARRAY3D_LAYERED;

	if (!desc->Width || desc->Width > WIDTH_MAX || desc->Height > HEIGHT_MAX ||
	    desc->Depth > DEPTH_MAX)
		return false;
	if (desc->Flags & CUDA_ARRAY3D_CUBEMAP)
		return desc->Width == desc->Height &&
		       (layered ? desc->Depth && desc->Depth % 6 == 0 : desc->Depth == 6);
	return layered ? desc->Depth : desc->Height || !desc->Depth;
}

static uint64_t round_up(uint64_t value, uint64_t to)
{
	return (value + to - 1) / to * to;
}

/* The least power of two times `least` that is not below the value; at most `most`. */
static uint64_t tile(uint64_t value, uint64_t least, uint64_t most)
{
	uint64_t size = least;

	while (size < value && size < most)
		size *= 2;
	return size;
}

static uint64_t level_bytes(uint64_t width, uint64_t rows, uint64_t depth, bool layers)
{
	uint64_t high = tile(rows, TILE_ROWS_MIN, TILE_ROWS_MAX);

	if (!layers && depth > 1) {
		high = tile(rows, TILE_ROWS_MIN, TILE_ROWS_3D);
		depth = round_up(depth, tile(depth, 1, TILE_DEPTH_3D));
	}
	return round_up(width, TILE_BYTES) * round_up(rows, high) * depth;
}

static uint64_t at_level(uint64_t size, unsigned level)
{
	return size >> level ? size >> level : 1;
}

void array_level(CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned level)
{
	desc->Width = at_level(desc->Width, level);
	if (desc->Height)
		desc->Height = at_level(desc->Height, level);
	if (desc->Depth && !(desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
		desc->Depth = at_level(desc->Depth, level);
}

uint64_t array_size(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels)
{
	const unsigned flags_known = 0x1ff;
	bool layers = desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP), compressed;
	unsigned element = element_bytes(desc, &compressed);
	uint64_t bytes = 0;

	if (!element || !shape_valid(desc) || desc->Flags & ~flags_known)
		return 0;
	for (unsigned i = 0; i < levels; i++) {
		CUDA_ARRAY3D_DESCRIPTOR level = *desc;

		array_level(&level, i);
		uint64_t width = level.Width, rows = level.Height ? level.Height : 1;
		if (compressed) {
			width = round_up(width, BLOCK_TEXELS) / BLOCK_TEXELS;
			rows = round_up(rows, BLOCK_TEXELS) / BLOCK_TEXELS;
		}
		bytes += level_bytes(width * element, rows, level.Depth ? level.Depth : 1, layers);
	}
	return round_up(bytes, ARRAY_ALIGNMENT);
}
