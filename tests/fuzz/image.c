/*
 * Fuzzes image_read: nothing outside of the image is touched, what it finds lies within limits, and
 * all of it is freed.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct image image;
	CUresult result = image_read(data, size, 90, &image);

	if (result) {
		check(!image.kernels && !image.variables && !image.unpacked);
		return 0;
	}
	for (unsigned i = 0; i < image.kernel_count; i++)
		check(strlen(image.kernels[i].name) > 0);
	for (unsigned i = 0; i < image.variable_count; i++) {
		const struct image_variable *variable = &image.variables[i];

		check(variable->offset + variable->bytes <=
		      (variable->managed ? image.managed_bytes : image.variable_bytes));
		check(variable->initial.count <= variable->bytes);
	}
	image_free(&image);
	return 0;
}
