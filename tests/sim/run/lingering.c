/*
 * A library of a CUDA program (lingers.c) whose destructor comes after that of the preloaded one,
 * and takes its time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((visibility("default"))) const char *lingering_path;

__attribute__((destructor)) static void linger(void)
{
	FILE *file = lingering_path ? fopen(lingering_path, "w") : NULL;

	if (!file)
		return;
	fclose(file);
	sleep(1000);
}
