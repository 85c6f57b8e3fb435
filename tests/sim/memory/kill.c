/* kill -9 of a process that holds memory: the others get it at once, and nothing is counted twice.
 */
#include "cuda_api.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define QUOTA (GIB + 2 * (CONTEXT + HIDDEN))

static CUdeviceptr pieces[4096];

static void holder(int wire)
{
	cuda_start(0);
	take(512 * MIB);
	say_ready(wire);
}

/* Tries until there is room. */
static void wait_for_room(uint64_t bytes)
{
	uint64_t began = now_ms();
	CUdeviceptr address;
	CUresult result;

	while ((result = cuMemAlloc_v2(&address, bytes)) != CUDA_SUCCESS) {
		CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(now_ms() - began < SOON_MS);
		sleep_ms(1);
	}
	give(address);
}

/* Who lives on. At each word that it hears: fills the device with pieces of that many bytes, none
 * for 1, and tells how many; then waits to hear of the death, and for room. */
static void survivor(int wire)
{
	uint64_t bytes;
	unsigned count;

	cuda_start(0);
	give(take(1));
	tell(wire, 1);
	while ((bytes = hear(wire))) {
		count = bytes > 1 ? fill(pieces, 4096, bytes) : 0;
		tell(wire, count);
		bytes = hear(wire);
		wait_for_room(bytes);
		while (count)
			give(pieces[--count]);
		CHECK_EQUAL(ledger_own(0).data, 0);
		tell(wire, 1);
	}
}

static struct member start(void)
{
	struct member member;

	limit_set(QUOTA);
	outside_peak_begin(0);
	member = member_begin(survivor);
	return member;
}

static void end(struct member *member)
{
	CHECK_AT_MOST(outside_peak(0), QUOTA + 2 * GRANULE);
	CHECK_SOON_EQUAL(ledger_reap(), 1);
	CHECK_EQUAL(ledger_used(0), CONTEXT + HIDDEN);
	member_finish(member);
}

TEST(holds_half)
{
	struct member lives = start(), victim;

	for (unsigned round = 0; round < 10; round++) {
		victim = member_begin(holder);
		CHECK_EQUAL(member_ask(&lives, GRANULE), 256);
		member_kill(&victim);
		member_ask(&lives, 512 * MIB);
	}
	end(&lives);
}

/* Allocates and frees without end. */
static void busy(int wire)
{
	unsigned seed = (unsigned)getpid();
	CUdeviceptr held[16] = {0};

	cuda_start(0);
	tell(wire, 1);
	for (;;) {
		unsigned i = (unsigned)rand_r(&seed) % 16;

		if (held[i])
			give(held[i]);
		held[i] = 0;
		if (cuMemAlloc_v2(&held[i], MIB + 1 + (unsigned)rand_r(&seed) % (63 * MIB)))
			held[i] = 0;
	}
}

/* At any moment of what it does. */
TEST(killed_busy)
{
	struct member lives = start(), victim;
	unsigned seed = 9;

	for (unsigned round = 0; round < 60; round++) {
		victim = member_begin(busy);
		member_ask(&lives, (1 + (unsigned)rand_r(&seed) % 8) * GRANULE);
		usleep((unsigned)rand_r(&seed) % 15000);
		member_kill(&victim);
		member_ask(&lives, 2 * GRANULE);
	}
	end(&lives);
}

/* Killed while it makes its context. */
static void starting(int wire)
{
	tell(wire, 1);
	for (;;) {
		cuda_start(0);
		CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	}
}

TEST(killed_starting)
{
	struct member lives = start(), victim;
	unsigned seed = 10;

	for (unsigned round = 0; round < 60; round++) {
		victim = member_begin(starting);
		usleep((unsigned)rand_r(&seed) % 4000);
		member_kill(&victim);
		member_ask(&lives, 1);
		tell(lives.wire, GIB + CONTEXT); /* the quota, less its own context */
		hear(lives.wire);
	}
	end(&lives);
}

/* -- what a process held whose files are being released -----------------------------------------
 */

/* The process has the region's file open no more, and its slot's lock is gone with that. */
static void let_go_of_region(void)
{
	const char *region = getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long first, end;
	char line[512], path[64], target[256];

	CHECK(region && maps);
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, region) && sscanf(line, "%lx-%lx", &first, &end) == 2)
			CHECK(munmap((void *)first, end - first) == 0);
	fclose(maps);
	for (int fd = 3; fd < 1024; fd++) {
		ssize_t len;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		len = readlink(path, target, sizeof(target) - 1);
		target[len > 0 ? len : 0] = '\0';
		if (len > 0 && strcmp(target, region) == 0)
			close(fd);
	}
}

/* The last thread, which stands for a driver at work on the files of the dead. */
static void *linger(void *arg)
{
	hear((int)(intptr_t)arg);
	syscall(SYS_exit_group, 0);
	return NULL;
}

static void be_dying(int wire)
{
	pthread_t thread;

	cuda_start(0);
	take(512 * MIB);
	say_ready(wire);
	let_go_of_region();
	CHECK(pthread_create(&thread, NULL, linger, (void *)(intptr_t)wire) == 0);
	syscall(SYS_exit, 0);
}

/* Its first thread has exited, as /proc says. */
static void await_dying(const struct member *member)
{
	char path[64], line[512];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)member->pid);
	for (;;) {
		FILE *stat = fopen(path, "re");

		CHECK(stat && fgets(line, sizeof(line), stat));
		fclose(stat);
		if (strstr(line, ") Z "))
			return;
		sleep_ms(1);
	}
}

static void be_patient(int wire)
{
	cuda_start(0);
	give(take(1));
	say_ready(wire);
	tell(wire, 1);
	give(take(768 * MIB)); /* with what the other held */
	tell(wire, 1);
}

/* A block of a KiB needs a granule of its own. */
static void be_patient_and_small(int wire)
{
	cuda_start(0);
	fill(pieces, 4096, GRANULE);
	say_ready(wire);
	tell(wire, 1);
	give(take(1024));
	tell(wire, 1);
}

/* Where the slice has no room, an allocation waits for the memory of a process that is being
 * killed. */
static void wait_for_dying(void (*patient)(int wire))
{
	struct member victim, lives;

	limit_set(QUOTA);
	victim = member_begin(be_dying);
	lives = member_begin(patient);
	tell(victim.wire, 1);
	await_dying(&victim);
	member_ask(&lives, 1);
	sleep_ms(100);
	tell(victim.wire, 1);
	hear(lives.wire);
	member_end(&lives);
	member_end(&victim);
}

TEST(room_after_the_dying)
{
	wait_for_dying(be_patient);
}

TEST(small_room_after_the_dying)
{
	wait_for_dying(be_patient_and_small);
}
