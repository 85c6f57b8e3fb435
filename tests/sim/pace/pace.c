/* See pace.h. */
#include "pace.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

#define DEBT_NS (100 * (int64_t)1000000000)

struct vgpu_region_file *file;

void pace_map(void)
{
	int fd = open(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), O_RDWR | O_CLOEXEC);

	file = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(file != MAP_FAILED);
	close(fd);
}

void pace_start(const char *cores)
{
	env_set("CUDA_DEVICE_SM_LIMIT", cores);
	launch_start("40g");
	pace_map();
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		POKE(file->own.device[device].burst_ns, PACE_BURST_NS);
}

struct vgpu_region_bucket *bucket_of(unsigned gpu)
{
	return &file->own.device[ledger_index(gpu)].bucket;
}

int64_t level_of(unsigned gpu)
{
	const struct vgpu_region_bucket *bucket = bucket_of(gpu);

	return PEEK(bucket->credit) - PEEK(bucket->charged) - PEEK(bucket->corrected);
}

void into_debt(unsigned gpu)
{
	__atomic_fetch_add(&bucket_of(gpu)->corrected, DEBT_NS, __ATOMIC_SEQ_CST);
}

void out_of_debt(unsigned gpu)
{
	__atomic_fetch_sub(&bucket_of(gpu)->corrected, DEBT_NS, __ATOMIC_SEQ_CST);
}

/* -- time ------------------------------------------------------------------------------------- */

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now); /* as the simulated GPU does */
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* 0 where the kernel does not say. */
uint64_t delayed_ns(void)
{
	unsigned long long ran, delayed = 0;
	FILE *stat = fopen("/proc/thread-self/schedstat", "re");

	if (stat && fscanf(stat, "%llu %llu", &ran, &delayed) != 2)
		delayed = 0;
	if (stat)
		fclose(stat);
	return delayed;
}

/* -- shares ----------------------------------------------------------------------------------- */

uint64_t step_alone(void *ns)
{
	busy(spin, *(uint64_t *)ns, stream);
	return *(uint64_t *)ns;
}

struct share share_of(step_fn *step, void *arg, unsigned ms)
{
	uint64_t began, delayed, elapsed, given = 0;

	step(arg);
	began = now_ns();
	delayed = delayed_ns();
	do {
		given += step(arg);
		elapsed = now_ns() - began;
	} while (elapsed < ms * MS);
	delayed = delayed_ns() - delayed;
	if (delayed > elapsed / 2)
		delayed = elapsed / 2;
	return (struct share){100.0 * (double)given / (double)elapsed,
			      100.0 * (double)given / (double)(elapsed - delayed)};
}

bool share_is_right(const char *what, struct share share, double quota, double less,
		    unsigned attempt)
{
	static bool stalled_before;
	bool low = share.fair < quota - less, stalled = share.fair < quota / STALLED;
	bool twice = stalled && stalled_before && attempt > 0;

	stalled_before = stalled;

	printf("  %s: %.2f %% of a quota of %.0f (%.2f of the time it had)\n", what, share.pct,
	       quota, share.fair);
	fflush(stdout);
	if (share.pct > quota + MORE_PCT || twice || (low && attempt + 1 == ATTEMPTS))
		check_failed(__FILE__, __LINE__, what);
	return !low;
}

void check_share(const char *what, step_fn *step, void *arg, double quota)
{
	unsigned attempt = 0;

	share_of(step, arg, 200); /* gets to know the kernels */
	while (!share_is_right(what, share_of(step, arg, 1000), quota, LESS_PCT, attempt))
		attempt++;
}
