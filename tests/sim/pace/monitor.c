/*
 * HAMi's monitor, played by a program that knows the layout from tests/abi/hami.def alone and not
 * from our header: it finds the tenant's file, maps it once, reads what it reports, and writes the
 * words by which it blocks a tenant and lifts its compute limit.
 */
#include "pace.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

enum {
#define HAMI_SIZE(structure, bytes, type)                 BYTES_##structure = (bytes),
#define HAMI(structure, name, offset, bytes, type, field) AT_##structure##_##name = (offset),
#include "hami.def"
#undef HAMI
#undef HAMI_SIZE
};

/* -- the monitor ------------------------------------------------------------------------------ */

static uint8_t *map;

static int32_t *word(size_t offset)
{
	return (int32_t *)(map + offset);
}

static uint64_t figure(size_t offset)
{
	return PEEK(*(uint64_t *)(map + offset));
}

/* As the monitor comes by a file: one with the magic is mapped, and of full size then, or it would
 * be taken for one of an older layout. */
static bool find(const char *path)
{
	struct stat st;
	int32_t magic = 0;
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return false;
	if (pread(fd, &magic, sizeof(magic), AT_region_initialized_flag) > 0 && magic) {
		CHECK_EQUAL(magic, 19920718);
		CHECK(fstat(fd, &st) == 0);
		CHECK_AT_MOST(BYTES_region, st.st_size);
		map = mmap(NULL, BYTES_region, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		CHECK(map != MAP_FAILED);
	}
	close(fd);
	return magic;
}

static void find_soon(const char *path)
{
	uint64_t began = now_ms();

	while (!find(path))
		CHECK(now_ms() - began < LONG_MS);
	CHECK_EQUAL(*word(AT_region_major_version), 1);
	CHECK_EQUAL(*word(AT_region_minor_version), 2);
}

/* The slot of a process, among those that are in use. */
static size_t slot_of(pid_t pid)
{
	int32_t count = PEEK(*word(AT_region_proc_num));

	CHECK(count >= 0 && count <= 1024);
	for (size_t i = 0; i < (size_t)count; i++) {
		size_t slot = AT_region_procs + i * BYTES_slot;

		if (PEEK(*word(slot + AT_slot_status)) && PEEK(*word(slot + AT_slot_pid)) == pid)
			return slot;
	}
	check_failed(__FILE__, __LINE__, "the process is in no slot");
}

static size_t used_of(size_t slot, unsigned device)
{
	return slot + AT_slot_used + device * BYTES_used;
}

/* -- the tenant ------------------------------------------------------------------------------- */

#define HELD (100 * MIB)

enum order { ORDER_LAUNCH = 1, ORDER_WORK, ORDER_MEASURE };

/* For some milliseconds, as much as it may. */
static uint64_t work(void)
{
	uint64_t began = now_ms();

	while (now_ms() - began < 300)
		busy(spin, MS, stream);
	return 1;
}

/* How long the launches of three kernels of 20 ms take, in ms. */
static uint64_t measure(void)
{
	uint64_t began = now_ms();

	for (unsigned i = 0; i < 3; i++)
		busy(spin, 20 * MS, stream);
	return now_ms() - began;
}

static void tenant(int wire)
{
	pace_start(getenv("CUDA_DEVICE_SM_LIMIT"));
	take(HELD);
	tell(wire, 1);
	for (;;) {
		switch (hear(wire)) {
		case ORDER_LAUNCH:
			CHECK_OK(launch());
			tell(wire, 1);
			break;
		case ORDER_WORK:
			tell(wire, work());
			break;
		case ORDER_MEASURE:
			tell(wire, measure());
			break;
		}
	}
}

static uint64_t told(struct member *member, enum order order)
{
	tell(member->wire, order);
	return hear(member->wire);
}

/* Its environment is as HAMi's plugin makes it. */
static struct member start(const char *cores)
{
	struct member member;

	env_set("NVIDIA_VISIBLE_DEVICES", gpu_uuid(0));
	env_set("CUDA_DEVICE_MEMORY_LIMIT_0", "4096m");
	env_set("CUDA_DEVICE_SM_LIMIT", cores);
	member = member_start(tenant);
	CHECK_EQUAL(hear(member.wire), 1);
	find_soon(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"));
	return member;
}

/* -- scenes ----------------------------------------------------------------------------------- */

static void touches_cuda(int wire)
{
	(void)wire;
	cuda_start(0);
}

/* However early it looks, it sees no file, one without the magic, or a whole one. */
TEST(made)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	for (unsigned i = 0; i < 20; i++) {
		struct member member;
		char name[32];

		snprintf(name, sizeof(name), "%u.cache", i);
		env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path(name));
		member = member_start(touches_cuda);
		find_soon(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"));
		CHECK_AT_MOST(1, figure(AT_region_device_num));
		CHECK_EQUAL(figure(AT_region_limit), 4 * GIB);
		member_end(&member);
	}
}

/* The sum that the monitor holds against the parts, and what NVML says of the process outside. */
static void check_memory(size_t slot, pid_t pid, uint64_t least)
{
	size_t used = used_of(slot, 0);
	uint64_t held = figure(used + AT_used_context) + figure(used + AT_used_module) +
			figure(used + AT_used_data);

	CHECK_AT_MOST(least, figure(used + AT_used_data));
	CHECK_AT_MOST(held, figure(used + AT_used_total));
	CHECK_AT_MOST(figure(used + AT_used_total), 4 * GIB);
	CHECK_EQUAL(figure(used + AT_used_context) + figure(used + AT_used_data) +
			    figure(used + AT_used_module),
		    outside_of(0, pid));
	CHECK_EQUAL(figure(slot + AT_slot_seqlock), 0);
	for (unsigned i = 1; i < 16; i++)
		CHECK_EQUAL(figure(used_of(slot, i) + AT_used_total), 0);
}

static void check_uuid(void)
{
	char key[96] = "";

	snprintf(key, sizeof(key), "%s", gpu_uuid(0));
	CHECK_EQUAL(figure(AT_region_device_num), 1);
	CHECK(memcmp(map + AT_region_uuids, key, sizeof(key)) == 0);
}

TEST(reads)
{
	struct member a = start("40"), b;
	time_t began = time(NULL);
	size_t slot = slot_of(a.pid);
	uint64_t sm = 0;

	check_uuid();
	CHECK_EQUAL(figure(AT_region_limit), 4 * GIB);
	CHECK_EQUAL(figure(AT_region_sm_limit), 40);
	CHECK_EQUAL(PEEK(*word(AT_region_utilization_switch)), 1);
	CHECK_EQUAL(PEEK(*word(AT_region_priority)), 1);
	CHECK_EQUAL(PEEK(*word(slot + AT_slot_status)), 1);
	check_memory(slot, a.pid, HELD);

	for (uint64_t i = 0; i < LONG_MS / 300 && (sm < 1 || sm > 100); i++) {
		told(&a, ORDER_WORK);
		sm = figure(slot + AT_slot_device_util + AT_util_sm);
	}
	CHECK(sm >= 1 && sm <= 100);
	CHECK_AT_MOST(began - 2, figure(AT_region_last_kernel_time));
	CHECK_AT_MOST(figure(AT_region_last_kernel_time), time(NULL) + 1);

	b = start("40");
	CHECK(slot_of(a.pid) == slot && slot_of(b.pid) != slot);
	check_memory(slot_of(b.pid), b.pid, HELD);
	member_kill(&a);
	member_kill(&b);
}

static bool has_said(const struct member *member)
{
	uint64_t said;

	return recv(member->wire, &said, sizeof(said), MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* The monitor's count, of which there is one every 5 s there; what it leaves. */
static int32_t count_down(void)
{
	int32_t count = PEEK(*word(AT_region_recent_kernel));

	if (count > 0)
		POKE(*word(AT_region_recent_kernel), count - 1);
	return count > 0 ? count - 1 : count;
}

TEST(blocks)
{
	struct member a = start(NULL);
	int32_t *recent = word(AT_region_recent_kernel);

	/* Who launches is seen to, again and again. */
	for (unsigned round = 0; round < 3; round++) {
		while (count_down() > 0)
			;
		for (uint64_t began = now_ms(); PEEK(*recent) != 2;) {
			CHECK(now_ms() - began < LONG_MS);
			CHECK_EQUAL(told(&a, ORDER_LAUNCH), 1);
		}
	}
	/* Who does not is idle after two looks, and stays so. */
	count_down();
	count_down();
	sleep_ms(STAY_MS);
	CHECK_EQUAL(PEEK(*recent), 0);
	for (unsigned round = 0; round < 3; round++) {
		POKE(*recent, -1);
		tell(a.wire, ORDER_LAUNCH);
		sleep_ms(STAY_MS);
		CHECK(!has_said(&a));
		CHECK_EQUAL(PEEK(*recent), -1);
		POKE(*recent, 0);
		CHECK_EQUAL(hear(a.wire), 1);
	}
	member_kill(&a);
}

/* With 10 % of the time, 60 ms of kernels take 600; some go at once. */
#define SLOW_MS 200

TEST(lifted)
{
	struct member a = start("10");

	for (unsigned round = 0; round < 2; round++) {
		POKE(*word(AT_region_utilization_switch), 1);
		sleep_ms(STAY_MS);
		told(&a, ORDER_MEASURE); /* what was free to go */
		CHECK_AT_MOST(SLOW_MS, told(&a, ORDER_MEASURE));
		POKE(*word(AT_region_utilization_switch), 0);
		for (unsigned attempt = 0; told(&a, ORDER_MEASURE) > SLOW_MS; attempt++)
			CHECK_AT_MOST(attempt, ATTEMPTS);
	}
	member_kill(&a);
}
