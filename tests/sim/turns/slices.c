/*
 * Slices that use one GPU at the same time, each in a process of its own. What they are given is
 * counted as they launch it; what they were charged, and whether they asked for turns at all, their
 * regions and the GPU's file of turns say.
 *
 * A busy machine makes slices slower, never faster. So none may get more than its quota of all the
 * time since it began, and one of SECONDS must come near it.
 */
#include "pace.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "vgpu_turns.h"

#define SLICES    2
#define NEAR_PCT  5   /* less than a quota, where slices take turns; without, they get less */
#define SAVED_MS  100 /* what a slice may have before its quota: saved, owed and in flight */
#define QUICK_MS  100 /* a neighbour that is stopped or killed costs less, usually, */
#define STOPS     8   /* in one of so many times */
#define SETTLE_MS 300
#define SECONDS   30  /* where the machine is not busy, the first or second one is right */
#define FIRST     100 /* launches of a slice, each of which it waits for */

static const char *quotas[SLICES] = {"30", "60"};
static double wanted[SLICES] = {30, 60}; /* of the time that both want, percent */

/* Shared by all. */
static struct common {
	struct {
		uint64_t given, delayed; /* ns, since its process began */
	} of[SLICES];
	bool enough[SLICES];
} * common;

static unsigned self; /* of a member: which slice it is in */

static const char *region_of(unsigned slice)
{
	return scene_path(slice == 0 ? "first.cache" : "second.cache");
}

/* A process of the slice: its one stream always has kernels of 1 ms. */
static void launches_on(int wire)
{
	uint64_t ns = MS;

	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", region_of(self));
	pace_start(quotas[self]);
	for (unsigned i = 0; i < FIRST; i++) { /* sees the other slice before it queues work */
		step_alone(&ns);
		synchronise(stream);
	}
	tell(wire, 1);
	while (!PEEK(common->enough[self])) {
		__atomic_fetch_add(&common->of[self].given, step_alone(&ns), __ATOMIC_SEQ_CST);
		POKE(common->of[self].delayed, delayed_ns());
	}
}

static struct member begin(unsigned slice)
{
	struct member member;

	if (!common) {
		common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		CHECK(common != MAP_FAILED);
		CHECK(mkdir(scene_path("turns"), 0777) == 0);
	}
	self = slice;
	POKE(common->enough[slice], false);
	member = member_start(launches_on);
	CHECK_EQUAL(hear(member.wire), 1);
	return member;
}

static void end(struct member *member, unsigned slice)
{
	POKE(common->enough[slice], true);
	member_end(member);
}

static const void *map(const char *path, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	const void *at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	CHECK(fd >= 0 && at != MAP_FAILED);
	close(fd);
	return at;
}

static const struct vgpu_region_file *file_of(unsigned slice)
{
	static const struct vgpu_region_file *files[SLICES];

	if (!files[slice])
		files[slice] = map(region_of(slice), sizeof(*files[slice]));
	return files[slice];
}

/* What the slice was charged for turns. */
static uint64_t paid_ns(unsigned slice)
{
	return PEEK(file_of(slice)->turn[0].paid_ns);
}

/* For how long its limit has held it back, but for the present time. */
static uint64_t throttled_ns(unsigned slice)
{
	return PEEK(file_of(slice)->own.device[0].throttled_ns);
}

static bool is_shared(void)
{
	static const struct vgpu_turns_file *turns;
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", scene_path("turns"), gpu_uuid(0));
	if (!turns)
		turns = map(path, sizeof(*turns));
	return PEEK(turns->header.turn) & VGPU_TURNS_SHARED;
}

/* -- shares ----------------------------------------------------------------------------------- */

static struct share share_in(const struct common *from, const struct common *to, unsigned slice,
			     uint64_t elapsed_ns)
{
	uint64_t given = to->of[slice].given - from->of[slice].given;
	uint64_t delayed = to->of[slice].delayed - from->of[slice].delayed;

	if (delayed > elapsed_ns / 2)
		delayed = elapsed_ns / 2;
	return (struct share){100.0 * (double)given / (double)elapsed_ns,
			      100.0 * (double)given / (double)(elapsed_ns - delayed)};
}

/* Whether there is time that no slice may have. Then limits throttle; else turns alone may keep
 * each slice at its quota. */
static bool quotas_leave_time(void)
{
	return wanted[0] + wanted[1] < 100;
}

/* Whether both had their quotas in the second that follows, and the limit of the first one
 * throttled it where it has to. */
static bool are_right(void)
{
	struct common before = *common, after;
	uint64_t throttled = throttled_ns(0);
	uint64_t began_ns = now_ns(), elapsed_ns;
	bool right = true;

	sleep_ms(1000);
	after = *common;
	elapsed_ns = now_ns() - began_ns;
	for (unsigned slice = 0; slice < SLICES; slice++) {
		struct share share = share_in(&before, &after, slice, elapsed_ns);

		printf("  %.2f %% where it is to have %.0f (%.2f of the time it had)\n", share.pct,
		       wanted[slice], share.fair);
		CHECK(share.pct > 0);
		right &= share.fair >= wanted[slice] - NEAR_PCT;
	}
	printf("  the first was throttled for %llu ms\n",
	       (unsigned long long)((throttled_ns(0) - throttled) / MS));
	fflush(stdout);
	return right && (!quotas_leave_time() || throttled_ns(0) > throttled);
}

static void wait_for_shares(void)
{
	for (unsigned second = 0; !are_right(); second++)
		CHECK(second + 1 < SECONDS);
}

TEST(shares)
{
	uint64_t began_ns = now_ns(), elapsed_ns;
	struct member members[SLICES];
	struct common after;

	for (unsigned slice = 0; slice < SLICES; slice++)
		members[slice] = begin(slice);
	sleep_ms(SETTLE_MS);
	wait_for_shares();
	after = *common;
	elapsed_ns = now_ns() - began_ns;
	for (unsigned slice = 0; slice < SLICES; slice++) {
		double most_ns = atof(quotas[slice]) / 100 * (double)elapsed_ns;

		CHECK_AT_MOST(after.of[slice].given, (uint64_t)most_ns + SAVED_MS * MS);
		CHECK(paid_ns(slice) > 0);
	}
	for (unsigned slice = 0; slice < SLICES; slice++)
		end(&members[slice], slice);
}

/* A slice without a quota has what that of the other leaves. */
TEST(rest)
{
	struct member members[SLICES];

	quotas[1] = "0";
	wanted[1] = 70;
	for (unsigned slice = 0; slice < SLICES; slice++)
		members[slice] = begin(slice);
	sleep_ms(SETTLE_MS);
	wait_for_shares();
	for (unsigned slice = 0; slice < SLICES; slice++)
		end(&members[slice], slice);
}

/* -- one at a time ---------------------------------------------------------------------------- */

/* Waits until the slice has launched on for so many ms without a turn. */
static void wait_until_alone(unsigned slice)
{
	uint64_t began_ms = now_ms(), paid, given;

	do {
		CHECK(now_ms() - began_ms < LONG_MS);
		paid = paid_ns(slice);
		given = PEEK(common->of[slice].given);
		sleep_ms(SETTLE_MS);
	} while (is_shared() || paid_ns(slice) != paid || PEEK(common->of[slice].given) == given);
}

TEST(alone)
{
	struct member member = begin(1);
	uint64_t paid;

	sleep_ms(SETTLE_MS);
	paid = paid_ns(1); /* the first launch took the turn */
	CHECK_AT_MOST(paid, MS);
	sleep_ms(SETTLE_MS);
	CHECK_EQUAL(paid_ns(1), paid);
	CHECK(!is_shared());
	end(&member, 1);
}

TEST(leaves)
{
	struct member stays = begin(1), leaves = begin(0);

	wait_for_shares();
	end(&leaves, 0);
	wait_until_alone(1);
	leaves = begin(0);
	wait_for_shares();
	end(&leaves, 0);
	end(&stays, 1);
}

/* -- neighbours that are stopped or killed ---------------------------------------------------- */

/* After which time the slice has launched for 10 ms more. */
static uint64_t delay_ms(unsigned slice)
{
	uint64_t began_ms = now_ms(), given = PEEK(common->of[slice].given) + 10 * MS;

	while (PEEK(common->of[slice].given) < given) {
		CHECK(now_ms() - began_ms < LONG_MS);
		sleep_ms(1);
	}
	return now_ms() - began_ms;
}

static void check_quick(uint64_t best_ms)
{
	printf("  the neighbour went on after %llu ms\n", (unsigned long long)best_ms);
	CHECK_AT_MOST(best_ms, QUICK_MS);
}

TEST(stopped)
{
	struct member stays = begin(1), stops = begin(0);
	uint64_t best_ms = UINT64_MAX;

	wait_for_shares();
	for (unsigned i = 0; i < STOPS; i++) {
		uint64_t took_ms;

		CHECK(kill(stops.pid, SIGSTOP) == 0);
		took_ms = delay_ms(1);
		best_ms = took_ms < best_ms ? took_ms : best_ms;
		CHECK(kill(stops.pid, SIGCONT) == 0);
		delay_ms(0);
		sleep_ms(37 + 11 * i);
	}
	check_quick(best_ms);
	wait_for_shares();
	end(&stops, 0);
	end(&stays, 1);
}

TEST(killed)
{
	struct member stays = begin(1), dies = begin(0);
	uint64_t best_ms = UINT64_MAX;

	wait_for_shares();
	for (unsigned i = 0; i < STOPS; i++) {
		uint64_t took_ms;

		member_kill(&dies);
		took_ms = delay_ms(1);
		best_ms = took_ms < best_ms ? took_ms : best_ms;
		dies = begin(0);
		sleep_ms(137 + 11 * i);
	}
	check_quick(best_ms);
	wait_for_shares();
	end(&dies, 0);
	end(&stays, 1);
}

/* -- a forked child --------------------------------------------------------------------------- */

/* Launches, forks, and is killed; the child lives on, and has no part in its parent's turns. */
static void forks_on(int wire)
{
	uint64_t ns = MS;
	pid_t child;

	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", region_of(0));
	pace_start(quotas[0]);
	for (unsigned i = 0; i < 50; i++)
		step_alone(&ns);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		sleep_ms(2 * LONG_MS);
		_exit(0);
	}
	tell(wire, (uint64_t)child);
	for (;;)
		__atomic_fetch_add(&common->of[0].given, step_alone(&ns), __ATOMIC_SEQ_CST);
}

TEST(forked)
{
	struct member stays = begin(1), forks = member_start(forks_on);
	pid_t child = (pid_t)hear(forks.wire);

	wait_for_shares();
	CHECK(kill(forks.pid, SIGKILL) == 0);
	wait_until_alone(1);
	CHECK(kill(child, SIGKILL) == 0);
	CHECK_EQUAL(member_wait(&forks), SIGKILL);
	end(&stays, 1);
}
