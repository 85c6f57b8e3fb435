/* Hashes of words and of bytes, for tables and for keys. They are not safe against chosen input.
 * Some values are in regions, or are compared with those of other processes, so they must never
 * change. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HASH_START      0xcbf29ce484222325u
#define HASH_MULTIPLIER 0x9e3779b97f4a7c15u

/* Fibonacci hashing: the upper bits depend on all bits of the word, and the lower bits on the lower
 * ones only. */
static inline uint64_t hash_word(uint64_t word)
{
	return word * HASH_MULTIPLIER;
}

/* FNV-1a: the hash, which began as HASH_START, with one more byte or word. */
static inline uint64_t hash_add(uint64_t hash, uint64_t word)
{
	return (hash ^ word) * 0x100000001b3u;
}

/* FNV-1a of bytes. */
static inline uint64_t hash_bytes(const void *bytes, size_t len)
{
	uint64_t hash = HASH_START;

	for (size_t i = 0; i < len; i++)
		hash = hash_add(hash, ((const unsigned char *)bytes)[i]);
	return hash;
}
