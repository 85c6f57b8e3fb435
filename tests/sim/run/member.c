/* Takes a slot in the region of its slice, says so by making the file argv[1], and holds it until
 * it is killed. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "region.h"

int main(int argc, char **argv)
{
	const char *path = getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
	struct region region = REGION_CLOSED;
	struct fault fault = {""};
	FILE *ready;

	if (argc != 2 || !path)
		return 2;
	if (region_open(path, NULL, &region, &fault) || region_claim(&region, &fault)) {
		fprintf(stderr, "member: %s\n", fault.text);
		return 1;
	}
	ready = fopen(argv[1], "w");
	if (!ready || fclose(ready))
		return 1;
	for (;;)
		pause();
}
