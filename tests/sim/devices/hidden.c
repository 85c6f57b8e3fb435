/*
 * GPUs outside the slice are not seen, the others are numbered as the application asks, and it
 * never finds anything but its own CUDA_VISIBLE_DEVICES.
 */
#include "cuda_api.h"

#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wrapper.h"

#define VISIBLE "CUDA_VISIBLE_DEVICES"
#define OWN     "7,the application's own"

/* A machine of four, of which the slice has 1, 2 and 3. */
static void three_of_four(void)
{
	env_set("VGPU_SIM_GPUS", "4x8G");
	policy_write(gpu_uuid(1), "memory = 1G\n");
	policy_write(gpu_uuid(2), "memory = 2G\n");
	policy_write(gpu_uuid(3), "memory = 3G\n");
}

/* `gpus` has a digit for each device: the GPU that it is. */
static void assert_sees(const char *gpus)
{
	int count = -1;
	CUuuid uuid;

	CHECK_OK(cuInit(0));
	CHECK_OK(cuDeviceGetCount(&count));
	CHECK_EQUAL(count, strlen(gpus));
	for (int i = 0; i < count; i++) {
		CHECK_OK(cuDeviceGetUuid_v2(&uuid, i));
		CHECK_EQUAL(uuid.bytes[15], gpus[i] - '0');
	}
}

/* Its environment is what it was: the variable, the others, and their order. */
static size_t snapshot(char **entries, size_t max)
{
	size_t count = 0;

	for (; environ[count]; count++) {
		CHECK(count < max);
		entries[count] = environ[count];
	}
	return count;
}

static void assert_restored(char **entries, size_t count)
{
	for (size_t i = 0; i < count; i++)
		CHECK(environ[i] == entries[i]);
	CHECK(environ[count] == NULL);
}

static void assert_asked(const char *asked)
{
	CHECK(asked ? !strcmp(getenv(VISIBLE), asked) : !getenv(VISIBLE));
}

static void sees(const char *asked, const char *gpus)
{
	static char *before[1024];
	size_t count;

	three_of_four();
	env_set(VISIBLE, asked);
	count = snapshot(before, 1024);
	if (*gpus == '!')
		CHECK_EQUAL(cuInit(0), atoi(gpus + 1));
	else
		assert_sees(gpus);
	assert_restored(before, count);
	assert_asked(asked);
}

/* !N: cuInit's result is N. */
static const struct list {
	const char *name, *asked, *gpus;
} lists[] = {
	{"by_default", NULL, "123"}, {"by_number", "2,0", "31"}, {"beyond_ends", "1,3,0", "2"},
	{"none", "", "!100"},        {"twice", "1,1", "!101"},   {"garbage", "NoDevFiles", "!100"},
};

static void sees_list(const struct list *row)
{
	sees(row->asked, row->gpus);
}

TEST_TABLE(lists, sees_list);

TEST(by_uuid)
{
	char list[256];

	snprintf(list, sizeof(list), "%s,%s,%s", gpu_uuid(3), gpu_uuid(2), gpu_uuid(1));
	sees(list, "321");
	CHECK(!strcmp(devices_wrapper()->seen, list)); /* nothing was to be changed */
}

TEST(outside_ends)
{
	char list[256];

	snprintf(list, sizeof(list), "%s,%s,%s", gpu_uuid(2), gpu_uuid(0), gpu_uuid(1));
	sees(list, "2");
}

/* As with the driver alone, cuInit may be tried again, with another list. */
TEST(again)
{
	sees("-1", "!100");
	env_set(VISIBLE, NULL);
	CHECK(strcmp(devices_wrapper()->seen, "(none)"));
	sees("1", "2");
	assert_sees("2");
	CHECK_EQUAL(devices_wrapper()->calls, 3);
	CHECK(!strcmp(devices_wrapper()->seen, "1")); /* initialised: nothing is changed any more */
}

/* The order is by bus, however the files are listed, and one that is missing hides no other. */
TEST(one_missing)
{
	env_set("VGPU_SIM_GPUS", "3x8G");
	policy_write(gpu_uuid(1), "memory = 1G\n");
	policy_write(gpu_uuid(2), "memory = 2G\n");
	policy_write(gpu_uuid(9), "memory = 2G\n");
	scene_write("policy/GPU-00000000-0000-4000-8000-000000000000", "memory = 1G\n");
	assert_sees("12");
}

/* With all cards in the slice the driver is left alone. */
TEST(all_of_them)
{
	env_set("VGPU_SIM_GPUS", "2x8G");
	policy_write(gpu_uuid(1), "memory = 1G\n");
	policy_write(gpu_uuid(0), "memory = 2G\n");
	assert_sees("01");
	CHECK(!strcmp(devices_wrapper()->seen, "(none)"));
}

TEST(no_nvml)
{
	three_of_four();
	env_set("VGPU_SIM_FAULTS", "nvmlInit_v2=999");
	assert_sees("123");
}

/* Without a policy the container runtime has hidden what is not ours: HAMi's environment. */
TEST(without_policy)
{
	char list[256];

	snprintf(list, sizeof(list), "%s,%s", gpu_uuid(2), gpu_uuid(0));
	env_set("VGPU_SIM_GPUS", "3x8G");
	env_set("NVIDIA_VISIBLE_DEVICES", list);
	env_set("CUDA_DEVICE_MEMORY_LIMIT_0", "1g");
	env_set(VISIBLE, "2,1");
	assert_sees("21");
	CHECK(!strcmp(devices_wrapper()->seen, "2,1"));
}

static void start_in_vain(void)
{
	devices_wrapper()->device_count = VGPU_DEVICES_MAX + 1;
	CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
}

/* A slice cannot count what is held of more GPUs than a region has room for. */
TEST(more_than_a_slice_can_have)
{
	struct said said;

	env_set("VGPU_SIM_GPUS", "16x8G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	said = member_listen(start_in_vain);
	CHECK_EQUAL(said.status, 0);
	CHECK_EQUAL(lines_in(said.err), 1);
	CHECK(strstr(said.err, "17 GPUs") && strstr(said.err, "CUDA_VISIBLE_DEVICES"));
}

/* CUDA's device `device` is held to `quota`, and is the machine's `gpu`. */
static void assert_held(CUdevice device, unsigned gpu, uint64_t quota)
{
	static CUdeviceptr pieces[4096];

	CHECK_EQUAL(total_of(device), quota);
	cuda_start(device);
	fill(pieces, 4096, GRANULE);
	CHECK_AT_MOST(outside_used(gpu), quota + GRANULE);
	CHECK_AT_MOST(quota / 100 * 99, outside_used(gpu));
	CHECK_EQUAL(inside(gpu, 1).total, quota);
	CHECK_OK(cuDevicePrimaryCtxReset_v2(device));
}

/* Limits go with the GPUs, in whatever order. */
TEST(limits_follow)
{
	three_of_four();
	env_set(VISIBLE, "1,0");
	assert_sees("21");
	assert_held(0, 2, 2 * GIB);
	assert_held(1, 1, GIB);
}

TEST(limits_follow_all)
{
	env_set("VGPU_SIM_GPUS", "2x8G");
	policy_write(gpu_uuid(0), "memory = 1G\n");
	policy_write(gpu_uuid(1), "memory = 2G\n");
	env_set(VISIBLE, "1,0");
	assert_sees("10");
	assert_held(0, 1, 2 * GIB);
	assert_held(1, 0, GIB);
}

/* Two processes that number them differently count the same GPUs together. */
static void other_order(int wire)
{
	env_set(VISIBLE, "2,1,0");
	cuda_start(0);
	take(GIB);
	say_ready(wire);
}

TEST(two_orders)
{
	struct member other;

	three_of_four();
	other = member_begin(other_order);
	cuda_start(2);
	refused(GIB); /* of 3 GiB, less 1 GiB and two contexts */
	take(900 * MIB);
	CHECK_EQUAL(ledger_used(3), 2 * (CONTEXT + HIDDEN) + GIB + 900 * MIB);
	CHECK_EQUAL(ledger_used(1), 0);
	member_finish(&other);
}

/* -- what others do to the environment meanwhile ------------------------------------------------
 */

static void show_all(void)
{
	unsetenv(VISIBLE);
}

/* The second line: what is seen all the same cannot be used. */
TEST(seen_all_the_same)
{
	CUcontext context = (CUcontext)UNTOUCHED;

	three_of_four();
	devices_wrapper()->meanwhile = show_all;
	assert_sees("0123");
	CHECK_EQUAL(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_DEVICE_UNAVAILABLE);
	CHECK_EQUAL(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_DEVICE_UNAVAILABLE);
	CHECK(context == (CUcontext)UNTOUCHED);
	CHECK_EQUAL(outside_used(0), 0);
	assert_held(2, 2, 2 * GIB);
}

static void set_own(void)
{
	env_set(VISIBLE, OWN);
	env_set("ANOTHER", "one");
}

/* What is set while cuInit runs stays. */
TEST(set_meanwhile)
{
	three_of_four();
	devices_wrapper()->meanwhile = set_own;
	cuInit(0);
	CHECK(!strcmp(getenv(VISIBLE), OWN));
	CHECK(!strcmp(getenv("ANOTHER"), "one"));
}

static void set_another(void)
{
	env_set("ANOTHER", "one");
}

static const struct list others[] = {
	{"another_where_unset", NULL, "123"},
	{"another_where_set", "0,1,2", "123"},
};

static void another_meanwhile(const struct list *row)
{
	three_of_four();
	env_set(VISIBLE, row->asked);
	devices_wrapper()->meanwhile = set_another;
	assert_sees(row->gpus);
	CHECK(!strcmp(getenv("ANOTHER"), "one"));
	assert_asked(row->asked);
}

TEST_TABLE(others, another_meanwhile);

static int forked_status = -1;

static void fork_one(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(getenv(VISIBLE) ? 1 : 0);
	CHECK(pid > 0 && waitpid(pid, &forked_status, 0) == pid);
}

/* A child that is forked in that moment has its parent's own environment. */
TEST(forked_meanwhile)
{
	three_of_four();
	devices_wrapper()->meanwhile = fork_one;
	assert_sees("123");
	CHECK_EQUAL(forked_status, 0);
}

/* -- threads ------------------------------------------------------------------------------------
 */

static pthread_barrier_t gate;

static void *initialise(void *number)
{
	pthread_barrier_wait(&gate);
	CHECK_OK(cuInit(0));
	return number;
}

/* Reads the environment all the time: it is whole. */
static void *read_on(void *done)
{
	while (!__atomic_load_n((bool *)done, __ATOMIC_ACQUIRE)) {
		const char *value = getenv(VISIBLE);

		CHECK(!value || !strncmp(value, "GPU-", 4));
		CHECK(getenv("VGPU_POLICY") && getenv("LAST"));
	}
	return NULL;
}

TEST(many_threads)
{
	pthread_t reader;
	bool done = false;

	three_of_four();
	env_set("LAST", "one");
	CHECK(pthread_barrier_init(&gate, NULL, 8) == 0);
	CHECK(pthread_create(&reader, NULL, read_on, &done) == 0);
	threads_join(threads_start(8, initialise));
	CHECK(!getenv(VISIBLE));
	assert_sees("123");
	__atomic_store_n(&done, true, __ATOMIC_RELEASE);
	CHECK(pthread_join(reader, NULL) == 0);
}
