/* In the place of spec.c, where json-c was missing. */
#include <errno.h>

#include "spec.h"

int container_spec_text(const struct container_places *places, const struct container_slice *slice,
			char **ret_text, struct fault *fault)
{
	(void)places;
	(void)slice;
	(void)ret_text;
	return fault_set(fault, -ENOTSUP,
			 "this vgpu was built without CDI specifications: install json-c "
			 "(libjson-c-dev) and pkg-config, and build it again");
}
