/* Limits that change while programs of the slice run: by the policy, and by the region. */
#include "cuda_api.h"

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEEN_MS 100 /* a change holds by then */

static void write_policy(const char *text)
{
	policy_write(gpu_uuid(0), text);
}

static void start_with_policy(const char *text)
{
	write_policy(text);
	cuda_start(0);
	give(take(1));
	inside(0, 2); /* who only looks is there from the start, too */
}

static uint64_t limit_now(void)
{
	return __atomic_load_n(&ledger()->hami.limit[ledger_index(0)], __ATOMIC_RELAXED);
}

/* As a monitor, or a tenant, writes into the region. */
static void write_limit(uint64_t bytes)
{
	size_t at = offsetof(struct vgpu_region_file, hami.limit) +
		    (size_t)ledger_index(0) * sizeof(bytes);
	int fd = open(scene_path("slice.cache"), O_WRONLY | O_CLOEXEC);

	CHECK(fd >= 0 && pwrite(fd, &bytes, sizeof(bytes), (off_t)at) == sizeof(bytes));
	close(fd);
}

static void shown(uint64_t *ret_total, uint64_t *ret_free)
{
	size_t total, left;

	CHECK_OK(cuMemGetInfo_v2(&left, &total));
	*ret_total = total;
	*ret_free = left;
}

/* A call later than SEEN_MS sees it, in this process and in others that look. */
static void holds_soon(uint64_t bytes)
{
	uint64_t total, left;

	sleep_ms(SEEN_MS);
	shown(&total, &left);
	CHECK_EQUAL(total, bytes);
	CHECK_EQUAL(inside(0, 2).total, bytes);
}

TEST(raised)
{
	CUdeviceptr first;

	start_with_policy("memory = 2G\n");
	first = take(1 * GIB);
	refused(1 * GIB);
	write_policy("memory = 4G\n");
	holds_soon(4 * GIB);
	CHECK_EQUAL(limit_now(), 4 * GIB); /* the region says it, too */
	give(take(2 * GIB));
	refused(3 * GIB);
	give(first);
}

/* Below what is held: nothing is taken away, and there is nothing new until it fits. */
TEST(lowered)
{
	CUdeviceptr first, second;
	uint64_t total, left;

	start_with_policy("memory = 4G\n");
	first = take(1 * GIB);
	second = take(2 * GIB);
	write_policy("memory = 2G\n");
	holds_soon(2 * GIB);
	shown(&total, &left);
	CHECK_EQUAL(left, 0);
	refused(1);
	give(first);
	refused(1 * MIB);
	give(second);
	give(take(1 * GIB));
	refused(2 * GIB);
	CHECK_AT_MOST(outside_used(0), CONTEXT + HIDDEN + GRANULE);
}

/* A limit where there was none, and none where there was one. */
TEST(given_and_taken)
{
	CUdeviceptr first;

	start_with_policy("memory = unlimited\ncores = 50\n");
	first = take(10 * GIB);
	write_policy("cores = 50\nmemory = 11G\n");
	holds_soon(11 * GIB);
	refused(1 * GIB);
	write_policy("memory = unlimited\ncores = 50\n");
	holds_soon(80 * GIB);
	give(take(20 * GIB));
	give(first);
}

/* What makes no sense, or is gone, changes nothing. */
TEST(mistaken)
{
	start_with_policy("memory = 2G\n");
	write_policy("memory = lots\n");
	holds_soon(2 * GIB);
	write_policy("memory = 3G\n");
	holds_soon(3 * GIB);
	CHECK(rename(scene_path("policy"), scene_path("elsewhere")) == 0);
	holds_soon(3 * GIB);
	refused(3 * GIB);
}

/* Rewritten in place by a writer that is slow: what a reader meets meanwhile. */
static const char *const parts[] = {"", "cores = 50\n", "memory = unlim", "# memory"};

#define PARTS (sizeof(parts) / sizeof(*parts))

TEST(half_written)
{
	start_with_policy("memory = 2G\n");
	for (unsigned i = 0; i < PARTS; i++) {
		write_policy(parts[i]);
		holds_soon(2 * GIB);
		refused(2 * GIB);
	}
	write_policy("memory = unlimited\n");
	holds_soon(80 * GIB);
}

static void start_refused(void)
{
	CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
}

TEST(half_written_at_start)
{
	env_set("VGPU_POLICY", scene_path("policy"));
	for (unsigned i = 0; i < PARTS; i++) {
		struct said said;

		write_policy(parts[i]);
		said = member_listen(start_refused);
		CHECK_EQUAL(said.status, 0);
		CHECK_EQUAL(lines_in(said.err), 1);
		CHECK(strstr(said.err, "memory"));
	}
}

/* The same by a writer that never rests: at no moment is there more. */
static void rewriter(int wire)
{
	tell(wire, 1);
	for (;;)
		write_policy("cores = 90\nmemory = 2G\n"); /* emptied first */
}

TEST(rewritten_all_the_time)
{
	struct member member;
	CUdeviceptr first;

	start_with_policy("cores = 90\nmemory = 2G\n");
	first = take(1 * GIB);
	member = member_begin(rewriter);
	for (uint64_t began = now_ms(); now_ms() - began < 1000; sleep_ms(1))
		refused(1 * GIB);
	member_kill(&member);
	give(first);
}

/* A region says less than the policy, or as much; never more. */
TEST(region_beside_policy)
{
	start_with_policy("memory = 2G\n");
	write_limit(1 * GIB);
	holds_soon(1 * GIB);
	refused(1 * GIB);
	write_limit(40 * GIB);
	holds_soon(2 * GIB);
	refused(2 * GIB);
	write_limit(0);
	holds_soon(2 * GIB);
	refused(2 * GIB);
}

/* Without a policy, the region's word is for all who did not ask for less; zero is no word. */
TEST(region_alone)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	cuda_start(0);
	give(take(1));
	CHECK_EQUAL(inside(0, 2).total, 2 * GIB);
	write_limit(4 * GIB);
	holds_soon(4 * GIB);
	give(take(3 * GIB));
	write_limit(1 * GIB);
	holds_soon(1 * GIB);
	refused(1 * GIB);
	write_limit(0);
	holds_soon(2 * GIB);
	refused(2 * GIB);
}

static void modest(int wire)
{
	uint64_t total, left;

	hear(wire);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	cuda_start(0);
	say_ready(wire);
	shown(&total, &left);
	CHECK_EQUAL(total, 2 * GIB);
	refused(1 * GIB);
}

TEST(region_beside_less)
{
	struct member member = member_start(modest);

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	cuda_start(0);
	member_ask(&member, 1);
	write_limit(8 * GIB);
	holds_soon(8 * GIB);
	member_finish(&member);
}

/* Others of the slice take what is new as well, and all together no more than that. */
static void filler(int wire)
{
	CUdeviceptr pieces[64];
	unsigned count;

	env_set("VGPU_POLICY", scene_path("policy"));
	hear(wire);
	cuda_start(0);
	say_ready(wire);
	count = fill(pieces, 64, 256 * MIB);
	tell(wire, count);
	hear(wire);
}

TEST(shared)
{
	struct member members[3];
	uint64_t count = 0;

	for (unsigned i = 0; i < 3; i++)
		members[i] = member_start(filler);
	start_with_policy("memory = 3G\n");
	for (unsigned i = 0; i < 3; i++)
		member_ask(&members[i], 1);
	write_policy("memory = 8G\n");
	holds_soon(8 * GIB);
	outside_peak_begin(0);
	for (unsigned i = 0; i < 3; i++)
		tell(members[i].wire, 1);
	for (unsigned i = 0; i < 3; i++)
		count += hear(members[i].wire);
	CHECK_EQUAL(count, (8 * GIB - 4 * (CONTEXT + HIDDEN)) / (256 * MIB));
	CHECK_AT_MOST(outside_peak(0), 8 * GIB);
	for (unsigned i = 0; i < 3; i++)
		member_finish(&members[i]);
}
