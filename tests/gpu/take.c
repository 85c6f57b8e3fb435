/*
 * take PATH [STEP_MIB]: takes device memory through one path of the driver, in steps, until it is
 * refused; prints "PATH MIB ERROR" and waits for its standard input to end, so that others can look
 * at what the device really holds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "paths.h"

#define MOST_MIB 32768 /* of what an unlimited run takes: the card may have other users */

static CUresult take_all(const char *name, size_t step_mib, size_t *ret_mib)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	size_t got = 0;

	for (const struct path *path = paths; path->name; path++) {
		if (strcmp(path->name, name) != 0)
			continue;
		while (got < MOST_MIB && (result = path->take(step_mib * MIB)) == CUDA_SUCCESS)
			got += step_mib;
	}
	*ret_mib = got;
	return result;
}

int main(int argc, char **argv)
{
	size_t step_mib = argc > 2 ? strtoul(argv[2], NULL, 10) : 64, got = 0;
	const char *name = "no error";
	CUcontext context;
	CUresult result;

	if (argc < 2 || !step_mib) {
		fprintf(stderr, "usage: take PATH [STEP_MIB]; PATH is one of");
		for (const struct path *path = paths; path->name; path++)
			fprintf(stderr, " %s", path->name);
		fprintf(stderr, "\n");
		return 2;
	}
	result = cuInit(0);
	if (result == CUDA_SUCCESS)
		result = cuDevicePrimaryCtxRetain(&context, 0);
	if (result == CUDA_SUCCESS)
		result = cuCtxSetCurrent(context);
	if (result == CUDA_SUCCESS)
		result = take_all(argv[1], step_mib, &got);
	cuGetErrorName(result, &name);
	printf("%s %zu %s\n", argv[1], got, result == CUDA_SUCCESS ? "not-refused" : name);
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
