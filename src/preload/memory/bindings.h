/* The ends of what memory is bound to: sparse arrays and multicast objects. */
#pragma once

#include <stdint.h>

#include "cuda_abi.h"

/* An array or a multicast object has ended, or a context with all its arrays. The references of the
 * memory that is bound there end, too. */
void bindings_end_owner(uint64_t owner);
void bindings_end_context(CUcontext context);
