/*
 * Compressed parts of fatbins: LZ4 blocks ("-compress-mode=speed" of fatbinary, and older
 * toolkits) and zstd frames (the default since CUDA 12.8).
 *
 * LZ4 is unpacked here. For zstd, libzstd.so.1 is opened at the first such part, so programs
 * without such parts do not need that package.
 */
#include "image.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Reads the rest of a length of 15 or more: bytes that are added, until one is not 255. */
static bool length_read(const struct image_bytes *packed, size_t *at, size_t *length)
{
	unsigned char byte;

	do {
		if (*at >= packed->count)
			return false;
		byte = packed->data[(*at)++];
		*length += byte;
	} while (byte == 255);
	return true;
}

bool unpack_lz4(struct image_bytes packed, unsigned char *to, size_t bytes)
{
	const size_t shortest_match = 4;
	size_t at = 0, done = 0;

	while (at < packed.count) {
		unsigned token = packed.data[at++];
		size_t literals = token >> 4, match = token & 15;

		if (literals == 15 && !length_read(&packed, &at, &literals))
			return false;
		if (literals > packed.count - at || literals > bytes - done)
			return false;
		memcpy(to + done, packed.data + at, literals);
		at += literals;
		done += literals;
		if (at == packed.count) /* the last sequence has no match */
			break;
		if (packed.count - at < 2)
			return false;
		size_t distance = packed.data[at] | (size_t)packed.data[at + 1] << 8;
		at += 2;
		if (match == 15 && !length_read(&packed, &at, &match))
			return false;
		match += shortest_match;
		if (!distance || distance > done || match > bytes - done)
			return false;
		for (; match; match--, done++)
			to[done] = to[done - distance];
	}
	return done == bytes;
}

static size_t (*zstd_decompress)(void *to, size_t to_bytes, const void *from, size_t from_bytes);
static pthread_once_t zstd_once = PTHREAD_ONCE_INIT; /* guards the pointer above */

static void zstd_open(void)
{
	void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
	void *function = library ? dlsym(library, "ZSTD_decompress") : NULL;

	memcpy(&zstd_decompress, &function, sizeof zstd_decompress);
	if (!function)
		fputs("vgpu-sim: a fatbin is compressed with zstd: install libzstd.so.1 (package "
		      "libzstd1), or compile with nvcc -Xfatbin -compress-mode=none\n",
		      stderr);
}

/* libzstd reports an error as a number that is larger than any size. */
bool unpack_zstd(struct image_bytes packed, unsigned char *to, size_t bytes)
{
	pthread_once(&zstd_once, zstd_open);
	return zstd_decompress && zstd_decompress(to, bytes, packed.data, packed.count) == bytes;
}
