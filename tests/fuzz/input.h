/* Bytes of a fuzzer's input, taken one after the other; zeros behind its end. */
#pragma once

#include <stddef.h>
#include <stdint.h>

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
