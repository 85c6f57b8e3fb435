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

/* Loads the slice. configured: whether there is one. */
static void loads_region(const char *path, bool configured)
{
	loads();
	assert_string_equal(slice.region_path, path);
	assert_int_equal(slice.configured, configured);
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

static void set_named(const char *name)
{
	setenv("VGPU_POLICY", in_root(name), 1);
}

static void set_cache(const char *name)
{
	setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", in_root(name), 1);
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
	set_cache("mine");
	loads_region(in_root("mine"), false);
	write_text("mine", "");
	loads_region(in_root("mine"), true);
}

/* A path at which there is nothing does not hide the region at a well-known one, and its limits. */
UNIT_TEST(test_region_named_nowhere)
{
	write_text("default.cache", "");
	set_cache("nowhere/x");
	loads_region(in_root("default.cache"), true);
	setenv("CUDA_DEVICE_MEMORY_LIMIT", "80g", 1); /* it would be made there */
	loads_region(in_root("nowhere/x"), true);
}

/* A container's own region is in HAMi's directory: a variable chooses in it, and not another. */
UNIT_TEST(test_region_out_of_hami)
{
	write_text("hami/own.cache", "");
	write_text("mine", "");
	setenv("CUDA_DEVICE_MEMORY_LIMIT", "80g", 1);
	for (unsigned i = 0; i < 3; i++) {
		static const char *const others[] = {"mine", "nowhere", "hami/../mine"};

		set_cache(others[i]);
		loads_region(in_root("hami/own.cache"), true);
	}
	set_cache("hami/new.cache");
	loads_region(in_root("hami/new.cache"), true);
	write_text("hami/more.cache", "");
	set_cache("mine");
	refuses(-EINVAL, "has 2 regions, and nothing says which");
}

UNIT_TEST(test_region_of_hami)
{
	write_text("hami/libvgpu.so", "");
	write_text("hami/.cache", "");
	write_text("hami/.x.cache", "");
	write_text("hami/x.cache.old", "");
	loads_region(in_root("default.cache"), false);
	write_text("hami/0123.cache", "");
	loads_region(in_root("hami/0123.cache"), true);
	write_text("default.cache", "");
	loads_region(in_root("hami/0123.cache"), true);
	write_text("hami/4567.cache", "");
	refuses(-EINVAL, "has 2 regions, and nothing says which");
	set_cache("hami/4567.cache");
	loads_region(in_root("hami/4567.cache"), true);
}

UNIT_TEST(test_region_default)
{
	write_text("default.cache", "");
	loads_region(in_root("default.cache"), true);
	write_text("hami", "no directory");
	loads_region(in_root("default.cache"), true);
}

UNIT_TEST(test_region_of_policy)
{
	write_text("hami/a.cache", "");
	write_text("hami/b.cache", "");
	write_text("policy/" UUID_A, "memory = unlimited");
	write_text("policy/slice", "region = /given/region\nname = web");
	set_cache("mine");
	loads_region("/given/region", true);
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
	write_text("run/" UUID_B, "memory = 1G");
	write_text("run/slice", "region = /run/region");
	set_named("run");
	loads();
	assert_true(slice.has_policy);
	limits(UUID_B, 0, GIB, 0);
	lacks(UUID_A);
	assert_string_equal(slice.region_path, "/run/region");
}

UNIT_TEST(test_both_policies)
{
	write_text("policy/" UUID_A, "memory = 4G\ncores = 50\n");
	write_text("policy/" UUID_B, "memory = unlimited");
	write_text("policy/GPU-3", "memory = unlimited");
	write_text("run/" UUID_A, "memory = 8G\ncores = 20");
	write_text("run/" UUID_B, "memory = 1G");
	write_text("run/GPU-4", "memory = unlimited");
	write_text("run/slice", "region = /run/region\nname = run");
	set_named("run");
	loads();
	assert_int_equal(slice.policy.device_count, 2);
	limits(UUID_A, 0, 4 * GIB, 20);
	limits(UUID_B, 0, GIB, 0);
	lacks("GPU-3");
	lacks("GPU-4");
	assert_string_equal(slice.region_path, "/run/region");
	assert_string_equal(slice.policy.name, "run");
	write_text("policy/slice", "region = /given");
	loads_region("/given", true);
	assert_string_equal(slice.policy.name, "run");
}

/* What a GPU gets by the machine's policy and by the one that VGPU_POLICY names, each of which is
 * the text for the GPU and that for the slice. The stricter word holds, else the machine's. */
static const struct {
	const char *name, *own, *own_slice, *named, *named_slice,
		*variable; /* NULL: there is none */
	unsigned pct, most_pct, group;
	uint64_t burst_ns;
	bool oversubscribe; /* by the policies and the variable CUDA_OVERSUBSCRIBE */
	struct policy_gang gang;
} merged[] = {
	/* clang-format off */
	{"share-most and share", "cores = 30-100", .named = "cores = 50", .pct = 30, .most_pct = 50},
	{"share and share-most", "cores = 50", .named = "cores = 30-100", .pct = 30, .most_pct = 50},
	{"share-most and less", "cores = 30-100", .named = "cores = 20", .pct = 20},
	{"less and share-most", "cores = 20", .named = "cores = 30-100", .pct = 20},
	{"two with a most", "cores = 30-60", .named = "cores = 50-100", .pct = 30, .most_pct = 60},
	{"none and share-most", "", .named = "cores = 30-100", .pct = 30, .most_pct = 100},
	{"all and share-most", "cores = 100", .named = "cores = 30-100", .pct = 30, .most_pct = 100},

	/* The environment may choose to oversubscribe without a policy, else only not to. */
	{.name = "nothing oversubscribes"},
	{"a variable oversubscribes", .variable = "true", .oversubscribe = true},
	{"a variable does not", .variable = "false"},
	{"a policy says nothing", .own = ""},
	{"a policy says nothing, a variable", "", .variable = "true"},
	{"a policy oversubscribes", "", "oversubscribe = yes", .oversubscribe = true},
	{"a policy and a variable", "", "oversubscribe = yes", .variable = "true",
	 .oversubscribe = true},
	{"a policy, and a variable does not", "", "oversubscribe = yes", .variable = "0"},
	{"the other policy says nothing", "", "oversubscribe = yes", "", .variable = "true"},
	{"both policies oversubscribe", "", "oversubscribe = yes", "", "oversubscribe = yes",
	 .oversubscribe = true},
	{"the other policy alone", "", "oversubscribe = no", "", .named_slice = "oversubscribe = yes"},

	{"a gang by the other policy", "", NULL, "", "gang = yes", .gang = {POLICY_GANG_YES, ""}},
	{"no gang by the machine's", "", "gang = no", "", "gang = yes",
	 .gang = {POLICY_GANG_NO, ""}},
	{"a gang's name", "", "# nothing", "", "gang = train", .gang = {POLICY_GANG_NAMED, "train"}},
	{"a group by the other policy", "", NULL, "", "group = 100", .group = 100},
	{"a group by the machine's", "", "group = 101", "", "group = 100", .group = 101},

	{"a burst", "burst = 25ms", .burst_ns = 25000000},
	{"no burst", "", .burst_ns = 0},
	{"the shorter burst", "burst = 25ms", .named = "burst = 30ms", .burst_ns = 25000000},
	{"the only burst", "", .named = "burst = 30ms", .burst_ns = 30000000},
	{"a burst of nothing", "burst = 25ms", .named = "burst = 0", .burst_ns = POLICY_NO_BURST},
	/* clang-format on */
};

static void write_policy(const char *dir, const char *gpu, const char *slice_text)
{
	char name[64], text[64];

	if (gpu) {
		snprintf(name, sizeof(name), "%s/%s", dir, UUID_A);
		snprintf(text, sizeof(text), "memory = 4G\n%s\n", gpu);
		write_text(name, text);
	}
	snprintf(name, sizeof(name), "%s/slice", dir);
	if (slice_text)
		write_text(name, slice_text);
}

UNIT_ROWS(merged)
{
	const struct policy_device *device = &slice.policy.device[0];

	write_policy("policy", row->own, row->own_slice);
	write_policy("run", row->named, row->named_slice);
	if (row->named)
		set_named("run");
	if (row->variable)
		setenv("CUDA_OVERSUBSCRIBE", row->variable, 1);
	loads();
	assert_int_equal(slice.oversubscribe, row->oversubscribe);
	assert_int_equal(slice.policy.gang.rule, row->gang.rule);
	assert_int_equal(slice_gang(&slice).rule, row->gang.rule);
	assert_string_equal(slice_gang(&slice).name, row->gang.name);
	assert_int_equal(slice.policy.has_group, row->group != 0);
	assert_int_equal(slice.policy.group, row->group);
	if (!row->own)
		return;
	assert_int_equal(device->cores_pct, row->pct);
	assert_int_equal(device->cores_most_pct, row->most_pct);
	assert_int_equal(device->burst_ns, row->burst_ns);
}

UNIT_TEST(test_bad_gang)
{
	write_policy("policy", "", NULL);
	write_policy("run", "", "gang = .train");
	set_named("run");
	refuses(-EINVAL, "write yes or no");
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
	write_text("policy/" UUID_A, "memory = 1G");
	make_dir("run");
	write_text("run/" UUID_A, "memory = 8G");
	set_named("run");
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

UNIT_TEST(test_nothing_in_common)
{
	write_text("policy/" UUID_A, "memory = unlimited");
	make_dir("run");
	write_text("run/" UUID_B, "memory = unlimited");
	set_named("run");
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
	set_named("gone");
	refuses(-ENOENT, "gone, which is not there");
	set_named("go\nne");
	refuses(-ENOENT, "go?ne, which is not there");
	set_named("gone");
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
	write_text("policy/" UUID_A, "memory = 4G");
	assert_int_equal(slice_load(in_root("policy"), &slice, &fault), 0);
	assert_true(slice.has_policy);
}
