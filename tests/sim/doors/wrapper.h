/* Checks what wrapper.c, which is preloaded, counted. */
#pragma once

#include "driver.h"
#include "ways.h"

/*
 * Call it after check_held. If DOORS_CALLS is set, it is the number of calls of cuMemAlloc_v2
 * that a wrapper in the chain must see for one call of the application.
 */
static inline void check_wrapper(void)
{
	const char *expected = getenv("DOORS_CALLS");
	unsigned (*calls)(void) = (unsigned (*)(void))by_default("doors_wrapper_calls");
	CUdeviceptr address = 0;
	unsigned before;
	CUresult result;

	if (!expected)
		return;
	CHECK_SAYING(calls, "the wrapper is not preloaded");
	before = calls();
	result = CALL(cuMemAlloc_v2)(&address, 1 << 20);
	CHECK_SAYING(result == CUDA_SUCCESS, "cuMemAlloc_v2 of 1 MiB says %d", result);
	CHECK_SAYING(calls() - before == (unsigned)atoi(expected),
		     "the wrapper saw %u calls, not %s", calls() - before, expected);
}
