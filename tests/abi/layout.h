/* What our header and the toolkit's say of the same types, to be compared: cuda_types.def and
 * nvml_types.def list what, each side fills in a table of rows in the same order. */
#pragma once

#include <stddef.h>

struct layout {
	const char *name;
	size_t size, align, offset; /* offset: of a field in its structure */
	int is_signed;              /* of an integer */
};

extern const struct layout our_layout[];
extern const size_t our_layout_rows;

#define INTEGER(type) {#type, sizeof(type), _Alignof(type), 0, (type)-1 < (type)1},
#define TYPE(type)    {#type, sizeof(type), _Alignof(type), 0, 0},
#define FIELD(type, field)                                                                       \
	{#type "." #field, sizeof(((type *)0)->field), _Alignof(__typeof__(((type *)0)->field)), \
	 offsetof(type, field), 0},

#define CONSTANT(name) {#name, (size_t)(name), 0, 0, 0},

/* 0, or 1 when a line on stderr says which differ. */
int layout_compare(const struct layout *theirs, size_t rows);
