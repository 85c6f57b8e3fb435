/* The properties that fuzzers check, and the inputs that they read. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Ends the fuzzer with an error unless the property holds. */
static inline void check(bool holds)
{
	if (!holds)
		abort();
}

/* Copies an input to a block of its size, in which a read beyond its end is seen. The caller frees
 * the block. */
static inline uint8_t *copy_input(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	check(copy != NULL);
	if (size)
		memcpy(copy, data, size);
	return copy;
}

/* An input whose bytes are taken one after the other, with zeros after its end. */
struct input {
	const uint8_t *at;
	size_t left;
};

static inline unsigned take(struct input *input)
{
	if (input->left == 0)
		return 0;
	input->left--;
	return *input->at++;
}

static inline unsigned take_16(struct input *input)
{
	unsigned low = take(input);

	return low | take(input) << 8;
}
