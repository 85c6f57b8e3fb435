/*
 * Takes a slot in the region of its slice, says so by making the file argv[1], and holds it until
 * it is killed. With argv[2], it has that many bytes of device 0 charged; with argv[3] as well, it
 * charges and refunds them over and over: "fast", or "slowly", so that nearly always a change is
 * half done.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "region.h"
#include "steps.h"
#include "sys.h"

/* Each change stops here, with the lock. */
static void linger(enum region_step step)
{
	if (step == REGION_STEP_raise_used || step == REGION_STEP_lower_total)
		sys_sleep_ns(20 * NS_PER_MS);
}

static int charge(struct region *region, uint64_t bytes)
{
	return region_charge(region, 0, REGION_DATA, bytes, 0);
}

static int churn(struct region *region, uint64_t bytes, bool slowly)
{
	int error = 0;

	if (slowly)
		region_step_hook = linger;
	while (!error) {
		region_refund(region, 0, REGION_DATA, bytes);
		if (slowly)
			sys_sleep_ns(NS_PER_MS); /* else nobody would get the lock */
		error = charge(region, bytes);
		if (slowly)
			sys_sleep_ns(NS_PER_MS);
	}
	return error;
}

int main(int argc, char **argv)
{
	const char *path = getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
	uint64_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	struct region region = REGION_CLOSED;
	struct fault fault = {""};
	FILE *ready;

	if (argc < 2 || !path)
		return 2;
	if (region_open(path, NULL, &region, &fault) || region_claim(&region, &fault)) {
		fprintf(stderr, "member: %s\n", fault.text);
		return 1;
	}
	if (bytes && charge(&region, bytes))
		return 1;
	ready = fopen(argv[1], "w");
	if (!ready || fclose(ready))
		return 1;
	if (argc > 3)
		return churn(&region, bytes, strcmp(argv[3], "slowly") == 0) != 0;
	for (;;)
		pause();
}
