/* HAMi's variables: every spelling, every refusal, and which GPU a limit belongs to. */
#include "slice_fixture.h"

#include "size.h"
#include "slice_internal.h"

#define UUID_A "GPU-51300000-0000-4000-8000-00000000000a"
#define UUID_B "GPU-51300000-0000-4000-8000-00000000000b"
#define UUID_C "GPU-51300000-0000-4000-8000-00000000000c"

static struct slice_env env;

static void reads(void)
{
	struct fault fault = {""};

	memset(&env, 0x5a, sizeof(env));
	if (environment_read(&env, &fault))
		fail_msg("refused: %s", fault.text);
	assert_string_equal(fault.text, "");
}

static void refuses(const char *name, const char *value, const char *words)
{
	struct fault fault = {""};
	struct slice_env before;

	memset(&env, 0x5a, sizeof(env));
	before = env;
	setenv(name, value, 1);
	assert_int_equal(environment_read(&env, &fault), -EINVAL);
	assert_memory_equal(&env, &before, sizeof(env));
	assert_says(fault.text, name);
	assert_says(fault.text, words);
	assert_int_equal(environment_read(&env, NULL), -EINVAL);
	unsetenv(name);
}

UNIT_TEST(test_empty)
{
	setenv("CUDA_DEVICE_MEMORY_LIMIT", "", 1);
	setenv("CUDA_DEVICE_SM_LIMIT_3", "", 1);
	setenv("CUDA_TASK_PRIORITY", "", 1);
	setenv("NVIDIA_VISIBLE_DEVICES", "", 1);
	reads();
	for (unsigned i = 0; i < VGPU_DEVICES_MAX; i++) {
		assert_int_equal(env.memory_bytes[i], 0);
		assert_int_equal(env.cores_pct[i], 0);
		assert_string_equal(env.visible[i], "");
	}
	assert_int_equal(env.visible_count, 0);
	assert_int_equal(env.priority, 1);
}

UNIT_TEST(test_memory)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} cases[] = {
		{"1048576", MIB},      {"1024k", MIB},   {"1024K", MIB},    {"4096m", 4 * GIB},
		{"4096M", 4 * GIB},    {"4g", 4 * GIB},  {"4G", 4 * GIB},   {"4GiB", 4 * GIB},
		{" 4g ", 4 * GIB},     {"0", 0},         {"0m", 0},         {"0.000g", 0},
		{"0.001k", 1},         {"4Gi", 4 * GIB}, {"4gi", 4 * GIB},  {"4096Mi", 4 * GIB},
		{"4GB", 4 * GIB},      {"4gb", 4 * GIB}, {"4Gib", 4 * GIB}, {"4194304Ki", 4 * GIB},
		{"1.5Gi", 1536 * MIB},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setenv("CUDA_DEVICE_MEMORY_LIMIT", cases[i].text, 1);
		reads();
		assert_int_equal(env.memory_bytes[0], cases[i].bytes);
		assert_int_equal(env.memory_bytes[15], cases[i].bytes);
	}
}

UNIT_TEST(test_indexed_wins)
{
	setenv("CUDA_DEVICE_MEMORY_LIMIT", "1g", 1);
	setenv("CUDA_DEVICE_MEMORY_LIMIT_0", "2g", 1);
	setenv("CUDA_DEVICE_MEMORY_LIMIT_2", "0", 1);
	setenv("CUDA_DEVICE_MEMORY_LIMIT_15", "512m", 1);
	setenv("CUDA_DEVICE_SM_LIMIT", "40", 1);
	setenv("CUDA_DEVICE_SM_LIMIT_1", "60", 1);
	reads();
	assert_int_equal(env.memory_bytes[0], 2 * GIB);
	assert_int_equal(env.memory_bytes[1], GIB);
	assert_int_equal(env.memory_bytes[2], 0);
	assert_int_equal(env.memory_bytes[14], GIB);
	assert_int_equal(env.memory_bytes[15], 512 * MIB);
	assert_int_equal(env.cores_pct[0], 40);
	assert_int_equal(env.cores_pct[1], 60);
}

UNIT_TEST(test_cores)
{
	static const struct {
		const char *text;
		unsigned pct;
	} cases[] = {{"1", 1},     {"99", 99},     {"0", 0},     {"100", 0},      {"250", 0},
		     {" 30 ", 30}, {"50%", 50},    {"50.5", 50}, {"50.999%", 50}, {"99.9", 99},
		     {"0.5", 1},   {"0.0001%", 1}, {"0%", 0},    {"0.0", 0},      {"100%", 0},
		     {"100.5", 0}, {"30 %", 30}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setenv("CUDA_DEVICE_SM_LIMIT_7", cases[i].text, 1);
		reads();
		assert_int_equal(env.cores_pct[7], cases[i].pct);
		assert_int_equal(env.cores_pct[6], 0);
	}
}

UNIT_TEST(test_priority)
{
	setenv("CUDA_TASK_PRIORITY", "0", 1);
	reads();
	assert_int_equal(env.priority, 0);
	setenv("CUDA_TASK_PRIORITY", "1", 1);
	reads();
	assert_int_equal(env.priority, 1);
}

UNIT_TEST(test_oversubscribe)
{
	static const struct {
		const char *text;
		int value;
	} cases[] = {{"true", 1},  {"TRUE", 1}, {"1", 1},  {"yes", 1},
		     {"false", 0}, {"0", 0},    {"No", 0}, {"", -1}};

	reads();
	assert_int_equal(env.oversubscribe, -1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setenv("CUDA_OVERSUBSCRIBE", cases[i].text, 1);
		reads();
		assert_int_equal(env.oversubscribe, cases[i].value);
	}
	refuses("CUDA_OVERSUBSCRIBE", "perhaps", "is \"perhaps\": write true or false");
	refuses("CUDA_OVERSUBSCRIBE", "2", "write true or false");
}

UNIT_TEST(test_refused)
{
	static const char *const sizes[] = {
		"8gigs", "-1",     "m",   "1 2",  "0x10",  "8,5g", "all",  "0.0001g", "0.0009t",
		"0.5",   "1.0001", "4Gx", "--4G", "1e3",   "4G4",  "4Gii", "4iG",     "4i",
		"4GBi",  "4 G i",  "4BB", "50%",  "4..5G", "4.G",  "+4G"};
	static const char *const shares[] = {"-1",   "half", "99999999999999999999",
					     "50%%", "%50",  "%",
					     "50.",  ".5",   "50.5.5",
					     "5 0",  "1e1",  "50%x",
					     "50g",  "+50"};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		refuses("CUDA_DEVICE_MEMORY_LIMIT", sizes[i], "which is no size");
		refuses("CUDA_DEVICE_MEMORY_LIMIT_15", sizes[i], "which is no size");
	}
	refuses("CUDA_DEVICE_MEMORY_LIMIT_0", "8gigs",
		"CUDA_DEVICE_MEMORY_LIMIT_0 is \"8gigs\", which is no size: write bytes or a "
		"number with k, m or g, such as 8192m");
	refuses("CUDA_DEVICE_MEMORY_LIMIT", "9999999999999g", "which is no size");
	for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
		refuses("CUDA_DEVICE_SM_LIMIT", shares[i], "which is no percentage");
		refuses("CUDA_DEVICE_SM_LIMIT_1", shares[i], "which is no percentage");
	}
	refuses("CUDA_TASK_PRIORITY", "2", "write 0 for high or 1 for low");
	refuses("CUDA_TASK_PRIORITY", "high", "is \"high\", which is no priority");
}

/* A wrong general value is refused even where each GPU has one of its own. */
UNIT_TEST(test_refused_behind)
{
	char name[64];

	for (unsigned i = 0; i < VGPU_DEVICES_MAX; i++) {
		snprintf(name, sizeof(name), "CUDA_DEVICE_MEMORY_LIMIT_%u", i);
		setenv(name, "1g", 1);
	}
	refuses("CUDA_DEVICE_MEMORY_LIMIT", "x", "no size");
}

UNIT_TEST(test_refused_in_one_line)
{
	char longest[2000];

	refuses("CUDA_DEVICE_MEMORY_LIMIT", "1g\nvgpu: all is well", "\"1g?vgpu: all is well\"");
	memset(longest, '7', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	refuses("CUDA_DEVICE_MEMORY_LIMIT", longest, "7777...\", which is no size: write bytes");
}

static void visible(const char *value, unsigned count)
{
	setenv("NVIDIA_VISIBLE_DEVICES", value, 1);
	reads();
	assert_int_equal(env.visible_count, count);
	if (count == 0)
		assert_string_equal(env.visible[0], "");
}

UNIT_TEST(test_visible)
{
	char many[4096] = UUID_A;

	visible(UUID_B "," UUID_A, 2);
	assert_string_equal(env.visible[0], UUID_B);
	assert_string_equal(env.visible[1], UUID_A);
	visible("MIG-51300000-0000-4000-8000-00000000000a", 1);
	visible("GPU-513", 1);
	visible("all", 0);
	visible("none", 0);
	visible("0,1", 0);
	visible("GPU-", 0);
	visible("GPU-,GPU-5", 0);
	visible(UUID_A ",1", 0);
	visible(UUID_A ",", 0);
	visible("," UUID_A, 0);
	visible("GPU-11111111111111111111111111111111111111111111111111111111111111111111111111"
		"1111111111111111111111111",
		0);
	for (unsigned i = 0; i < 30; i++)
		strcat(many, "," UUID_B);
	visible(many, VGPU_DEVICES_MAX);
}

/* -- which GPU a limit belongs to -------------------------------------------------------------- */

static void limits(const struct slice *slice, const char *uuid, int index, uint64_t memory,
		   unsigned cores)
{
	struct slice_limits limits;

	assert_true(slice_limits(slice, uuid, index, &limits));
	assert_int_equal(slice_memory(&limits, 0, 0), memory);
	assert_int_equal(slice_stricter(slice_policy_cores(&limits), limits.env_pct), cores);
}

static struct slice from_environment(void)
{
	struct slice slice;

	memset(&slice, 0, sizeof(slice));
	reads();
	slice.env = env;
	return slice;
}

UNIT_TEST(test_limits_by_index)
{
	struct slice slice;

	setenv("CUDA_DEVICE_MEMORY_LIMIT_0", "4g", 1);
	setenv("CUDA_DEVICE_MEMORY_LIMIT_1", "2g", 1);
	setenv("CUDA_DEVICE_SM_LIMIT", "30", 1);
	slice = from_environment();
	assert_true(slice_needs_order(&slice));
	limits(&slice, UUID_A, 0, 4 * GIB, 30);
	limits(&slice, UUID_A, 1, 2 * GIB, 30);
	limits(&slice, UUID_A, 2, 0, 30);
	limits(&slice, UUID_A, -1, 2 * GIB, 30);
	limits(&slice, UUID_A, 16, 2 * GIB, 30);
}

UNIT_TEST(test_limits_by_uuid)
{
	struct slice slice;

	setenv("CUDA_DEVICE_MEMORY_LIMIT_0", "4g", 1);
	setenv("CUDA_DEVICE_MEMORY_LIMIT_1", "2g", 1);
	setenv("NVIDIA_VISIBLE_DEVICES", UUID_B "," UUID_A, 1);
	slice = from_environment();
	assert_false(slice_needs_order(&slice));
	for (int index = -1; index < 3; index++) {
		limits(&slice, UUID_B, index, 4 * GIB, 0);
		limits(&slice, UUID_A, index, 2 * GIB, 0);
		limits(&slice, UUID_C, index, 2 * GIB, 0);
	}
	setenv("NVIDIA_VISIBLE_DEVICES", "GPU-51300000-0000-4000-8000-00000000000c,GPU-5", 1);
	slice = from_environment();
	limits(&slice, UUID_C, -1, 4 * GIB, 0);
	limits(&slice, UUID_A, -1, 2 * GIB, 0);
}

UNIT_TEST(test_order_not_needed)
{
	struct slice slice = from_environment();

	assert_false(slice_needs_order(&slice));
	setenv("CUDA_DEVICE_MEMORY_LIMIT", "4g", 1);
	setenv("CUDA_DEVICE_SM_LIMIT", "50", 1);
	slice = from_environment();
	assert_false(slice_needs_order(&slice));
	limits(&slice, UUID_A, -1, 4 * GIB, 50);
	setenv("CUDA_DEVICE_SM_LIMIT_15", "51", 1);
	slice = from_environment();
	assert_true(slice_needs_order(&slice));
}
