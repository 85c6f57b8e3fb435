/*
 * leave MIB [work]: takes so much device memory, says "holds", and at the end of its input returns
 * from main, without a free. With "work" it first fills that memory for two seconds, says "works",
 * waits for the device and says "rests".
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "paths.h"

static void must(int holds, const char *what)
{
	if (holds)
		return;
	printf("FAIL %s\n", what);
	exit(1);
}

static void say(const char *word)
{
	printf("%s\n", word);
	fflush(stdout);
}

static void work(CUdeviceptr memory, size_t bytes)
{
	time_t began = time(NULL);

	while (time(NULL) - began < 4)
		must(cuMemsetD8Async(memory, 1, bytes, NULL) == CUDA_SUCCESS, "a fill");
	say("works");
	sleep(1);
	must(cuCtxSynchronize() == CUDA_SUCCESS, "the device");
	say("rests");
}

int main(int argc, char **argv)
{
	size_t bytes = argc > 1 ? (size_t)strtoul(argv[1], NULL, 10) * MIB : MIB;
	CUdeviceptr memory;
	CUcontext context;
	char end;

	must(cuInit(0) == CUDA_SUCCESS, "cuInit");
	must(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS, "a context");
	must(cuCtxSetCurrent(context) == CUDA_SUCCESS, "the context");
	must(cuMemAlloc_v2(&memory, bytes) == CUDA_SUCCESS, "the memory");
	say("holds");
	if (argc > 2 && strcmp(argv[2], "work") == 0)
		work(memory, bytes);
	while (read(0, &end, 1) > 0)
		;
	return 0;
}
