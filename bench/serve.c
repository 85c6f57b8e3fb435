/*
 * serve [OPTION=VALUE...]: a server that wants a small part of a GPU, and how long its requests
 * take.
 *
 * Requests come by chance, at times that do not depend on the server: the time between two is from
 * 0 to twice the mean. Each is a number of kernels (shares_gpu.h), which the server launches and
 * then waits for. A request's time is from when it came until its kernels are over, so it has the
 * time in it in which the server worked on earlier requests.
 *
 *     --kernels=N      of a request (20)
 *     --us=US          of a kernel (50)
 *     --every-us=US    from one request to the next, in the mean (6667)
 *     --seconds=S      for how long (3); --warm=S and for how long before, uncounted (0.3)
 *     --begin=TIME     begin then, in seconds since 1970
 *     --iters-per-us=X as `shares --calibrate` prints it
 *
 * It prints p50, p99 and the longest time in ms, how many requests there were, and which part of
 * the GPU's time their kernels are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shares_gpu.h"
#include "shares_options.h"

#define REQUESTS_MAX 1000000

struct options options = {.grid = 132}; /* shares_gpu.c reads it */

static double kernels = 20, kernel_us = 50, every_us = 6667, seconds = 3, warm_s = 0.3, begin_s,
	      iters_per_us;

static const struct {
	const char *name;
	double *value;
} takes[] = {
	{"--kernels=", &kernels},           {"--us=", &kernel_us}, {"--every-us=", &every_us},
	{"--seconds=", &seconds},           {"--warm=", &warm_s},  {"--begin=", &begin_s},
	{"--iters-per-us=", &iters_per_us},
};
#define TAKES (sizeof(takes) / sizeof(takes[0]))

static void read_option(const char *text)
{
	for (size_t i = 0; i < TAKES; i++) {
		size_t len = strlen(takes[i].name);
		char *end;

		if (strncmp(text, takes[i].name, len) != 0)
			continue;
		*takes[i].value = strtod(text + len, &end);
		if (end != text + len && !*end && *takes[i].value >= 0)
			return;
	}
	fail(text, "not an option with a number");
}

static void sleep_until_us(clockid_t clock, double us)
{
	double left_us;

	while ((left_us = us - us_of(clock)) > 0) {
		struct timespec t = {(time_t)(left_us / US_PER_S), 0};

		t.tv_nsec = (long)((left_us - (double)t.tv_sec * US_PER_S) * 1e3);
		nanosleep(&t, NULL);
	}
}

static double chance(void)
{
	static uint64_t random = 1;

	random = random * 6364136223846793005u + 1442695040888963407u;
	return (double)(random >> 11) / (double)((uint64_t)1 << 53);
}

static void serve_one(uint64_t iters)
{
	for (unsigned i = 0; i < (unsigned)kernels; i++)
		must(gpu_launch(gpu_kernel, iters, NULL), "cuLaunchKernel");
	must(cuStreamSynchronize(NULL), "cuStreamSynchronize");
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void print(double *took_us, size_t count)
{
	qsort(took_us, count, sizeof(*took_us), by_size);
	if (count == 0)
		fail("--seconds", "no request came");
	printf("p50=%.2f p99=%.2f longest=%.2f requests=%zu share=%.4f\n", took_us[count / 2] / 1e3,
	       took_us[count * 99 / 100] / 1e3, took_us[count - 1] / 1e3, count,
	       (double)count * kernels * kernel_us / (seconds * US_PER_S));
}

int main(int argc, char **argv)
{
	static double took_us[REQUESTS_MAX];
	double came_us, count_from_us, end_us;
	uint64_t iters;
	size_t count = 0;

	for (int i = 1; i < argc; i++)
		read_option(argv[i]);
	gpu_start();
	if (iters_per_us <= 0)
		iters_per_us = gpu_calibrate();
	iters = (uint64_t)(kernel_us * iters_per_us + 0.5);
	serve_one(iters);
	if (begin_s > 0)
		sleep_until_us(CLOCK_REALTIME, begin_s * US_PER_S);
	came_us = us_of(CLOCK_MONOTONIC);
	count_from_us = came_us + warm_s * US_PER_S;
	end_us = count_from_us + seconds * US_PER_S;
	while (came_us < end_us && count < REQUESTS_MAX) {
		sleep_until_us(CLOCK_MONOTONIC, came_us);
		serve_one(iters);
		if (came_us >= count_from_us)
			took_us[count++] = us_of(CLOCK_MONOTONIC) - came_us;
		came_us += chance() * 2 * every_us;
	}
	print(took_us, count);
	return 0;
}
