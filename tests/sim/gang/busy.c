/*
 * busy N: for which part of the time each of the first N GPUs is busy, percent, from its start
 * until it gets SIGTERM. NVML speaks of the second before; so it asks from a second after its start
 * on, and prints "-" if it ends before.
 */
#include "nvml_abi.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NVML_HOOK(name, parameters, arguments) nvmlReturn_t name parameters;
#define NVML_CALL(name, parameters)            nvmlReturn_t name parameters;
#define NVML_SIM(name, parameters)             nvmlReturn_t name parameters;
#include "nvml.def"

enum { GPUS_MAX = 16 };

static volatile sig_atomic_t ended;

static void end(int number)
{
	(void)number;
	ended = 1;
}

static void rest(long ms)
{
	struct timespec span = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&span, NULL);
}

int main(int argc, char **argv)
{
	unsigned count = argc == 2 ? (unsigned)atoi(argv[1]) : 0, times = 0;
	double sums[GPUS_MAX] = {0};
	nvmlUtilization_t utilization;
	nvmlDevice_t device;

	if (!count || count > GPUS_MAX || nvmlInit_v2())
		return 2;
	signal(SIGTERM, end);
	rest(1100);
	for (; !ended; times++) {
		for (unsigned i = 0; i < count; i++) {
			if (nvmlDeviceGetHandleByIndex_v2(i, &device) ||
			    nvmlDeviceGetUtilizationRates(device, &utilization))
				return 2;
			sums[i] += utilization.gpu;
		}
		rest(50);
	}
	for (unsigned i = 0; i < count; i++) {
		if (times)
			printf("%s%.1f", i ? " " : "", sums[i] / times);
		else
			printf("%s-", i ? " " : "");
	}
	putchar('\n');
	return 0;
}
