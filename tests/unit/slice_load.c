/* The whole slice: which source wins, what is stricter, where the region lies, what is refused. */
#include "slice_fixture.h"

#include <sys/syscall.h>

#include "size.h"
#include "slice_internal.h"
#include "sys.h"

#define UUID_A "GPU-51300000-0000-4000-8000-00000000000a"
#define UUID_B "GPU-51300000-0000-4000-8000-00000000000b"

static struct slice slice;

static struct slice_paths paths(void)
{
	return (struct slice_paths){in_root("policy"), in_root("default.cache"), in_root("hami")};
}

static void loads(void)
{
	struct slice_paths at = paths();
	struct fault fault = {""};

	memset(&slice, 0x5a, sizeof(slice));
	if (slice_load_from(&at, &slice, &fault))
		fail_msg("refused: %s", fault.text);
	assert_string_equal(fault.text, "");
}

static void refuses(int error, const char *words)
{
	struct slice_paths at = paths();
	struct fault fault = {""};
	struct slice before;

	memset(&slice, 0x5a, sizeof(slice));
	before = slice;
	assert_int_equal(slice_load_from(&at, &slice, &fault), error);
	assert_memory_equal(&slice, &before, sizeof(slice));
	assert_says(fault.text, words);
	assert_int_equal(slice_load_from(&at, &slice, NULL), error);
}

static void limits(const char *uuid, int index, uint64_t memory, unsigned cores)
{
	struct slice_limits limits;

	assert_true(slice_limits(&slice, uuid, index, &limits));
	assert_int_equal(slice_memory(&limits, 0, 0), memory);
	assert_int_equal(slice_stricter(slice_policy_cores(&limits), limits.env_pct), cores);
}

static void lacks(const char *uuid)
{
	struct slice_limits limits;

	assert_false(slice_limits(&slice, uuid, 0, &limits));
}

UNIT_TEST(test_nothing)
{
	setenv("NVIDIA_VISIBLE_DEVICES", "all", 1);
	setenv("CUDA_TASK_PRIORITY", "0", 1);
	setenv("CUDA_DEVICE_MEMORY_LIMIT", "0", 1);
	setenv("CUDA_DEVICE_SM_LIMIT", "100", 1);
	loads();
	assert_false(slice.configured);
	assert_false(slice.has_policy);
	assert_string_equal(slice.region_path, in_root("default.cache"));
	limits(UUID_A, 0, 0, 0);
}

UNIT_TEST(test_limit_configures)
{
	setenv("CUDA_DEVICE_MEMORY_LIMIT_3", "1g", 1);
	loads();
	assert_true(slice.configured);
	unsetenv("CUDA_DEVICE_MEMORY_LIMIT_3");
	setenv("CUDA_DEVICE_SM_LIMIT", "50", 1);
	loads();
	assert_true(slice.configured);
	assert_false(slice.has_policy);
	limits(UUID_A, 0, 0, 50);
}

/* -- where the region lies --------------------------------------------------------------------- */

UNIT_TEST(test_region_named)
{
	make_dir("hami");
	setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", in_root("mine"), 1);
	loads();
	assert_false(slice.configured);
	assert_string_equal(slice.region_path, in_root("mine"));
	write_text("mine", "");
	loads();
	assert_true(slice.configured);
	assert_string_equal(slice.region_path, in_root("mine"));
}

/* A path at which there is nothing does not hide the region at a well-known one, and its limits. */
UNIT_TEST(test_region_named_nowhere)
{
	write_text("default.cache", "");
	setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", in_root("nowhere/x"), 1);
	loads();
	assert_true(slice.configured);
	assert_string_equal(slice.region_path, in_root("default.cache"));
	setenv("CUDA_DEVICE_MEMORY_LIMIT", "80g", 1); /* it would be made there */
	loads();
	assert_string_equal(slice.region_path, in_root("nowhere/x"));
}

/* A container's own region is in HAMi's directory: a variable chooses in it, and not another. */
UNIT_TEST(test_region_out_of_hami)
{
	make_dir("hami");
	write_text("hami/own.cache", "");
	write_text("mine", "");
	setenv("CUDA_DEVICE_MEMORY_LIMIT", "80g", 1);
	for (unsigned i = 0; i < 3; i++) {
		static const char *const others[] = {"mine", "nowhere", "hami/../mine"};

		setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", in_root(others[i]), 1);
		loads();
		assert_true(slice.configured);
		assert_string_equal(slice.region_path, in_root("hami/own.cache"));
	}
	setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", in_root("hami/new.cache"), 1);
	loads();
	assert_string_equal(slice.region_path, in_root("hami/new.cache"));
	write_text("hami/more.cache", "");
	setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", in_root("mine"), 1);
	refuses(-EINVAL, "has 2 regions, and nothing says which");
}

UNIT_TEST(test_region_of_hami)
{
	make_dir("hami");
	write_text("hami/libvgpu.so", "");
	write_text("hami/.cache", "");
	write_text("hami/.x.cache", "");
	write_text("hami/x.cache.old", "");
	loads();
	assert_false(slice.configured);
	assert_string_equal(slice.region_path, in_root("default.cache"));
	write_text("hami/0123.cache", "");
	loads();
	assert_true(slice.configured);
	assert_string_equal(slice.region_path, in_root("hami/0123.cache"));
	write_text("default.cache", "");
	loads();
	assert_string_equal(slice.region_path, in_root("hami/0123.cache"));
	write_text("hami/4567.cache", "");
	refuses(-EINVAL, "has 2 regions, and nothing says which");
	setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", in_root("hami/4567.cache"), 1);
	loads();
	assert_string_equal(slice.region_path, in_root("hami/4567.cache"));
}

UNIT_TEST(test_region_default)
{
	write_text("default.cache", "");
	loads();
	assert_true(slice.configured);
	assert_string_equal(slice.region_path, in_root("default.cache"));
	write_text("hami", "no directory");
	loads();
	assert_string_equal(slice.region_path, in_root("default.cache"));
}

UNIT_TEST(test_region_of_policy)
{
	make_dir("policy");
	make_dir("hami");
	write_text("hami/a.cache", "");
	write_text("hami/b.cache", "");
	write_text("policy/" UUID_A, "memory = unlimited");
	write_text("policy/slice", "region = /given/region\nname = web");
	setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", in_root("mine"), 1);
	loads();
	assert_true(slice.configured);
	assert_string_equal(slice.region_path, "/given/region");
	assert_string_equal(slice.policy.name, "web");
}

UNIT_TEST(test_region_too_long)
{
	static char path[5000];

	memset(path, 'x', sizeof(path) - 1);
	path[0] = '/';
	setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
	refuses(-EINVAL, "CUDA_DEVICE_MEMORY_SHARED_CACHE is longer than a path can be");
}

/* -- policies ---------------------------------------------------------------------------------- */

UNIT_TEST(test_policy)
{
	make_dir("policy");
	write_text("policy/" UUID_A, "memory = 4G\ncores = 100\n");
	loads();
	assert_true(slice.configured);
	assert_true(slice.has_policy);
	limits(UUID_A, 0, 4 * GIB, 0);
	lacks(UUID_B);
	assert_string_equal(slice.region_path, in_root("default.cache"));
}

UNIT_TEST(test_environment_lowers)
{
	make_dir("policy");
	write_text("policy/" UUID_A, "memory = 4G\ncores = 50\n");
	write_text("policy/" UUID_B, "memory = unlimited");
	setenv("CUDA_DEVICE_MEMORY_LIMIT_0", "8g", 1);
	setenv("CUDA_DEVICE_MEMORY_LIMIT_1", "2g", 1);
	setenv("CUDA_DEVICE_SM_LIMIT", "0", 1);
	setenv("CUDA_DEVICE_SM_LIMIT_1", "20", 1);
	loads();
	limits(UUID_A, 0, 4 * GIB, 50);
	limits(UUID_A, 1, 2 * GIB, 20);
	limits(UUID_A, 2, 4 * GIB, 50);
	limits(UUID_A, -1, 2 * GIB, 20);
	limits(UUID_B, 0, 8 * GIB, 0);
	limits(UUID_B, 1, 2 * GIB, 20);
	lacks("GPU-51300000");
}

UNIT_TEST(test_named_policy)
{
	make_dir("run");
	write_text("run/" UUID_B, "memory = 1G");
	write_text("run/slice", "region = /run/region");
	setenv("VGPU_POLICY", in_root("run"), 1);
	loads();
	assert_true(slice.has_policy);
	limits(UUID_B, 0, GIB, 0);
	lacks(UUID_A);
	assert_string_equal(slice.region_path, "/run/region");
}

UNIT_TEST(test_both_policies)
{
	make_dir("policy");
	write_text("policy/" UUID_A, "memory = 4G\ncores = 50\n");
	write_text("policy/" UUID_B, "memory = unlimited");
	write_text("policy/GPU-3", "memory = unlimited");
	make_dir("run");
	write_text("run/" UUID_A, "memory = 8G\ncores = 20");
	write_text("run/" UUID_B, "memory = 1G");
	write_text("run/GPU-4", "memory = unlimited");
	write_text("run/slice", "region = /run/region\nname = run");
	setenv("VGPU_POLICY", in_root("run"), 1);
	loads();
	assert_int_equal(slice.policy.device_count, 2);
	limits(UUID_A, 0, 4 * GIB, 20);
	limits(UUID_B, 0, GIB, 0);
	lacks("GPU-3");
	lacks("GPU-4");
	assert_string_equal(slice.region_path, "/run/region");
	assert_string_equal(slice.policy.name, "run");
	write_text("policy/slice", "region = /given");
	loads();
	assert_string_equal(slice.region_path, "/given");
	assert_string_equal(slice.policy.name, "run");
}

UNIT_TEST(test_both_shares)
{
	static const struct {
		const char *own, *named;
		unsigned pct, most_pct;
	} cases[] = {
		{"cores = 30-100", "cores = 50", 30, 50},
		{"cores = 50", "cores = 30-100", 30, 50},
		{"cores = 30-100", "cores = 20", 20, 0},
		{"cores = 20", "cores = 30-100", 20, 0},
		{"cores = 30-60", "cores = 50-100", 30, 60},
		{"", "cores = 30-100", 30, 100},
		{"cores = 100", "cores = 30-100", 30, 100},
	};

	make_dir("policy");
	make_dir("run");
	setenv("VGPU_POLICY", in_root("run"), 1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char text[64];

		snprintf(text, sizeof(text), "memory = 4G\n%s\n", cases[i].own);
		write_text("policy/" UUID_A, text);
		snprintf(text, sizeof(text), "memory = 4G\n%s\n", cases[i].named);
		write_text("run/" UUID_A, text);
		loads();
		assert_int_equal(slice.policy.device[0].cores_pct, cases[i].pct);
		assert_int_equal(slice.policy.device[0].cores_most_pct, cases[i].most_pct);
	}
}

/* -- a policy that changes --------------------------------------------------------------------- */

static void reads(uint64_t memory)
{
	struct fault fault = {""};
	static struct policy policy;

	if (slice_read_policy(&slice, &policy, &fault) != 0)
		fail_msg("refused: %s", fault.text);
	assert_int_equal(policy.device[0].memory_bytes, memory);
}

static void reads_not(const char *words)
{
	struct fault fault = {""};
	static struct policy policy;

	assert_true(slice_read_policy(&slice, &policy, &fault) < 0);
	assert_says(fault.text, words);
}

/* Of two policies, the one that VGPU_POLICY names does not stand alone when the other is gone. */
UNIT_TEST(test_read_again)
{
	make_dir("policy");
	write_text("policy/" UUID_A, "memory = 1G");
	make_dir("run");
	write_text("run/" UUID_A, "memory = 8G");
	setenv("VGPU_POLICY", in_root("run"), 1);
	loads();
	reads(GIB);
	write_text("policy/" UUID_A, "memory = 2G");
	reads(2 * GIB);
	write_text("policy/" UUID_A, "");
	reads_not("does not say how much memory");
	assert_int_equal(rename(in_root("policy"), in_root("elsewhere")), 0);
	reads_not("is gone");
}

/* Files of one length, written in place within one tick of the clock that files' times are of. */
UNIT_TEST(test_stamp)
{
	uint64_t stamp, other = 0;

	make_dir("policy");
	write_text("policy/" UUID_A, "memory = 1G");
	write_text("policy/slice", "gang = no");
	loads();
	for (unsigned i = 0; i < 20; i++) {
		write_text("policy/" UUID_A, "memory = 2G");
		stamp = slice_policy_stamp(&slice);
		write_text("policy/" UUID_A, "memory = 4G");
		assert_int_not_equal(slice_policy_stamp(&slice), stamp);
	}
	for (unsigned tries = 0; tries < 1000; tries++) { /* and it comes to rest */
		other = slice_policy_stamp(&slice);
		usleep(20000);
		if (slice_policy_stamp(&slice) == other)
			break;
	}
	assert_int_equal(slice_policy_stamp(&slice), other);
	write_text("policy/slice", "gang = yes");
	assert_int_not_equal(slice_policy_stamp(&slice), other);
}

static void oversubscribes(const char *variable, bool wanted)
{
	if (variable)
		setenv("CUDA_OVERSUBSCRIBE", variable, 1);
	else
		unsetenv("CUDA_OVERSUBSCRIBE");
	loads();
	assert_int_equal(slice.oversubscribe, wanted);
}

/* The environment's to choose without a policy, else only to do without. */
UNIT_TEST(test_oversubscribe)
{
	oversubscribes(NULL, false);
	oversubscribes("true", true);
	oversubscribes("false", false);
	make_dir("policy");
	write_text("policy/" UUID_A, "memory = unlimited");
	oversubscribes(NULL, false);
	oversubscribes("true", false);
	write_text("policy/slice", "oversubscribe = yes");
	oversubscribes(NULL, true);
	oversubscribes("true", true);
	oversubscribes("0", false);
	make_dir("other");
	write_text("other/" UUID_A, "memory = unlimited");
	setenv("VGPU_POLICY", in_root("other"), 1);
	oversubscribes("true", false);
	write_text("other/slice", "oversubscribe = yes");
	oversubscribes(NULL, true);
	write_text("policy/slice", "oversubscribe = no");
	oversubscribes(NULL, false);
}

/* The machine's policy goes first. */
UNIT_TEST(test_gang)
{
	loads();
	assert_int_equal(slice.policy.gang.rule, POLICY_GANG_FOUND);
	make_dir("policy");
	write_text("policy/" UUID_A, "memory = unlimited");
	make_dir("run");
	write_text("run/" UUID_A, "memory = unlimited");
	write_text("run/slice", "gang = yes");
	setenv("VGPU_POLICY", in_root("run"), 1);
	loads();
	assert_int_equal(slice.policy.gang.rule, POLICY_GANG_YES);
	write_text("policy/slice", "gang = no");
	loads();
	assert_int_equal(slice.policy.gang.rule, POLICY_GANG_NO);
	write_text("policy/slice", "# nothing");
	write_text("run/slice", "gang = train");
	loads();
	assert_int_equal(slice_gang(&slice).rule, POLICY_GANG_NAMED);
	assert_string_equal(slice_gang(&slice).name, "train");
	write_text("run/slice", "gang = .train");
	refuses(-EINVAL, "write yes or no");
}

/* The machine's policy goes first. */
UNIT_TEST(test_group)
{
	make_dir("policy");
	write_text("policy/" UUID_A, "memory = 1G");
	make_dir("run");
	write_text("run/" UUID_A, "memory = 1G");
	write_text("run/slice", "group = 100");
	setenv("VGPU_POLICY", in_root("run"), 1);
	loads();
	assert_true(slice.policy.has_group);
	assert_int_equal(slice.policy.group, 100);
	write_text("policy/slice", "group = 101");
	loads();
	assert_int_equal(slice.policy.group, 101);
}

/* The shorter one. */
UNIT_TEST(test_burst)
{
	make_dir("policy");
	write_text("policy/" UUID_A, "memory = unlimited\nburst = 25ms");
	write_text("policy/" UUID_B, "memory = unlimited");
	loads();
	assert_int_equal(slice.policy.device[0].burst_ns, 25000000);
	assert_int_equal(slice.policy.device[1].burst_ns, 0);
	make_dir("run");
	write_text("run/" UUID_A, "memory = unlimited\nburst = 30ms");
	write_text("run/" UUID_B, "memory = unlimited\nburst = 30ms");
	setenv("VGPU_POLICY", in_root("run"), 1);
	loads();
	assert_int_equal(slice.policy.device[0].burst_ns, 25000000);
	assert_int_equal(slice.policy.device[1].burst_ns, 30000000);
	write_text("run/" UUID_A, "memory = unlimited\nburst = 0");
	loads();
	assert_int_equal(slice.policy.device[0].burst_ns, POLICY_NO_BURST);
}

UNIT_TEST(test_nothing_in_common)
{
	make_dir("policy");
	write_text("policy/" UUID_A, "memory = unlimited");
	make_dir("run");
	write_text("run/" UUID_B, "memory = unlimited");
	setenv("VGPU_POLICY", in_root("run"), 1);
	refuses(-EINVAL, "no GPU is left");
}

/* -- refusals ---------------------------------------------------------------------------------- */

UNIT_TEST(test_fail_closed)
{
	make_dir("policy");
	refuses(-EINVAL, "policy has no GPU");
	write_text("policy/" UUID_A, "memory = 1Q");
	refuses(-EINVAL, "is no size");
	write_text("policy/" UUID_A, "memory = 1G");
	setenv("VGPU_POLICY", in_root("gone"), 1);
	refuses(-ENOENT, "gone, which is not there");
	setenv("VGPU_POLICY", in_root("go\nne"), 1);
	refuses(-ENOENT, "go?ne, which is not there");
	setenv("VGPU_POLICY", in_root("gone"), 1);
	make_dir("gone");
	refuses(-EINVAL, "gone has no GPU");
	write_text("gone/" UUID_A, "cores = 0");
	refuses(-EINVAL, "is no share");
	unsetenv("VGPU_POLICY");
	setenv("CUDA_DEVICE_MEMORY_LIMIT_0", "lots", 1);
	refuses(-EINVAL, "CUDA_DEVICE_MEMORY_LIMIT_0 is \"lots\"");
}

static long refuse_to_list(long number)
{
	return number == SYS_getdents64 ? -EACCES : 0;
}

static long refuse_to_open(long number)
{
	return number == SYS_openat ? -EACCES : 0;
}

static long refuse_to_stat(long number)
{
	return number == SYS_newfstatat ? -EACCES : 0;
}

static void with(long (*fault)(long number), int error, const char *words)
{
	sys_fault = fault;
	refuses(error, words);
	sys_fault = NULL;
}

/* A directory that may not be read is not one that is empty. */
UNIT_TEST(test_unreadable)
{
	make_dir("hami");
	with(refuse_to_open, -EACCES, "the policy directory");
	with(refuse_to_list, -EACCES, "hami, where this container's region would be");
	sys_fault = refuse_to_stat;
	loads();
	sys_fault = NULL;
	assert_true(slice.configured); /* the region may be there */
	make_dir("policy");
	write_text("policy/" UUID_A, "memory = unlimited");
	with(refuse_to_list, -EACCES, "the policy directory");
}

static long refuse_to_ask(long number)
{
	return number == SYS_faccessat ? -EACCES : 0;
}

/* A directory for turns that the process cannot write is none. */
UNIT_TEST(test_turns)
{
	setenv("VGPU_TURNS", in_root("turns"), 1);
	loads();
	assert_string_equal(slice.turns_dir, "");
	make_dir("turns");
	loads();
	assert_string_equal(slice.turns_dir, in_root("turns"));
	assert_string_equal(slice_turns_path(), in_root("turns"));
	sys_fault = refuse_to_ask;
	loads();
	sys_fault = NULL;
	assert_string_equal(slice.turns_dir, "");
	write_text("file", "");
	setenv("VGPU_TURNS", in_root("file"), 1);
	loads();
	assert_string_equal(slice.turns_dir, "");
}

/* Where vgpud is asked; with a path that is too long, nowhere. */
UNIT_TEST(test_socket)
{
	static char path[SLICE_PATH_LEN + 1];

	loads();
	assert_string_equal(slice.socket, "/run/vgpud/vgpud.sock");
	setenv("VGPU_SOCKET", "/x/y", 1);
	loads();
	assert_string_equal(slice.socket, "/x/y");
	memset(path, 'x', sizeof(path) - 1);
	setenv("VGPU_SOCKET", path, 1);
	loads();
	assert_string_equal(slice.socket, "");
}

/* With the environment stripped, the policy and the region still say what they said. */
UNIT_TEST(test_stripped)
{
	make_dir("policy");
	write_text("policy/" UUID_A, "memory = 4G");
	setenv("CUDA_DEVICE_MEMORY_LIMIT", "8g", 1);
	clearenv();
	loads();
	limits(UUID_A, 0, 4 * GIB, 0);
}

/* The places that programs get; nothing there on a machine that builds. */
UNIT_TEST(test_well_known)
{
	struct fault fault = {""};
	struct stat st;

	if (stat(SLICE_POLICY_DIR, &st) == 0 || stat(SLICE_REGION_HAMI_DIR, &st) == 0)
		skip();
	assert_int_equal(slice_load(NULL, &slice, &fault), 0);
	assert_string_equal(slice.region_path, SLICE_REGION_DEFAULT);
	assert_false(slice.has_policy);
	make_dir("policy");
	write_text("policy/" UUID_A, "memory = 4G");
	assert_int_equal(slice_load(in_root("policy"), &slice, &fault), 0);
	assert_true(slice.has_policy);
}
