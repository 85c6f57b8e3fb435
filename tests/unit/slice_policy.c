/* Policies: what they may say, what is refused with which words, and that writing reads back. */
#include "slice_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>

#include "policy.h"
#include "size.h"
#include "sys.h"

#define UUID_A "GPU-51300000-0000-4000-8000-000000000000"
#define UUID_B "GPU-51300000-0000-4000-8000-000000000001"
#define UUID_M "MIG-51300000-0000-4000-8000-000000000002"

static struct policy parse(const char *name, const char *text)
{
	struct fault fault = {""};
	struct policy policy;

	memset(&policy, 0, sizeof(policy));
	if (policy_parse(name, text, &policy, &fault) != 0)
		fail_msg("refused: %s", fault.text);
	return policy;
}

static void refuses(const char *name, const char *text, const char *words)
{
	struct fault fault = {""};
	struct policy policy;

	memset(&policy, 0, sizeof(policy));
	assert_int_equal(policy_parse(name, text, &policy, &fault), -EINVAL);
	assert_says(fault.text, words);
	assert_says(fault.text, name);
	assert_int_equal(policy_parse(name, text, &policy, NULL), -EINVAL);
}

/* What a GPU's file gives. The file's text is the row's name. */
static const struct {
	const char *name;
	uint64_t bytes;
} sizes[] = {
	{"memory = 8G", 8 * GIB},
	{"memory=8g", 8 * GIB},
	{"memory = 8 GiB", 8 * GIB},
	{"memory = 8GB\n", 8 * GIB},
	{"memory = 8Gi", 8 * GIB},
	{"\t memory\t=\t4096m \t\r\n", 4096 * MIB},
	{"memory = 1.5G", 1536 * MIB},
	{"memory = 1t", 1024 * GIB},
	{"memory = 2048k", 2 * MIB},
	{"memory = 12345", 12345},
	{"# all of it\n\nmemory = 8G # or so\n   # end", 8 * GIB},
	{"memory = unlimited", 0},
	{"\n# all\nmemory=unlimited # of it\n", 0},
};

UNIT_ROWS(sizes)
{
	struct policy policy = parse(UUID_A, row->name);

	assert_int_equal(policy.device_count, 1);
	assert_string_equal(policy.device[0].uuid, UUID_A);
	assert_int_equal(policy.device[0].memory_bytes, row->bytes);
	assert_int_equal(policy.device[0].cores_pct, 0);
}

static const struct {
	const char *name;
	unsigned pct, most_pct;
	uint64_t burst_ns;
} shares[] = {
	{"cores = 1", .pct = 1},
	{"cores = 100", .pct = 100},
	{"cores = 30%", .pct = 30},
	{"cores = 50.5", .pct = 50},
	{"cores = 0.2 %", .pct = 1},
	{"cores = unlimited", .pct = 0},
	{"cores = 30-100", .pct = 30, .most_pct = 100},
	{"cores = 30% - 60.5%", .pct = 30, .most_pct = 60},
	{"cores = 30-30", .pct = 30},
	{"cores = 30", .pct = 30},
	{"burst = 25ms", .burst_ns = 25000000},
	{"burst = 25 ms # for requests", .burst_ns = 25000000},
	{"burst = 1s", .burst_ns = 1000000000},
	{"burst = 0.05s", .burst_ns = 50000000},
	{"burst = 1500us", .burst_ns = 1500000},
	{"burst = 2.5ms", .burst_ns = 2500000},
	{"burst = 12345ns", .burst_ns = 12345},
	{"burst = 1000ms", .burst_ns = 1000000000},
	{"burst = 0", .burst_ns = POLICY_NO_BURST},
	{"burst = 0.0s", .burst_ns = POLICY_NO_BURST},
	{"burst = 0 ms", .burst_ns = POLICY_NO_BURST},
};

UNIT_ROWS(shares)
{
	struct policy policy;
	char text[256];

	snprintf(text, sizeof(text), "memory = 1G\n%s", row->name);
	policy = parse(UUID_M, text);
	assert_string_equal(policy.device[0].uuid, UUID_M);
	assert_int_equal(policy.device[0].memory_bytes, GIB);
	assert_int_equal(policy.device[0].cores_pct, row->pct);
	assert_int_equal(policy.device[0].cores_most_pct, row->most_pct);
	assert_int_equal(policy.device[0].burst_ns, row->burst_ns);
}

/* What the file `slice` gives. */
static const struct {
	const char *name;
	bool oversubscribe, has_group;
	unsigned group;
	enum policy_gang_rule gang;
} answers[] = {
	{.name = ""},
	{"oversubscribe = yes", .oversubscribe = true},
	{"oversubscribe=True", .oversubscribe = true},
	{.name = "oversubscribe = no"},
	{.name = "oversubscribe = false"},
	{"group = 100", .has_group = true, .group = 100},
	{"group=0", .has_group = true, .group = 0},
	{.name = "# group = 1"},
	{"gang = yes", .gang = POLICY_GANG_YES},
	{"gang=no # for now", .gang = POLICY_GANG_NO},
};

UNIT_ROWS(answers)
{
	struct policy policy = parse("slice", row->name);

	assert_int_equal(policy.oversubscribe, row->oversubscribe);
	assert_int_equal(policy.has_group, row->has_group);
	assert_int_equal(policy.group, row->group);
	assert_int_equal(policy.gang.rule, row->gang);
}

/* The texts of a file that are refused, and the words of the refusal, which name the row. */
static const struct {
	const char *name, *file, *texts[14];
} refusals[] = {
	{"does not say how much memory the slice may hold: write \"memory = 8G\"", UUID_A, {""}},
	{"does not say how much memory", UUID_A, {"\n\n# nothing\n"}},
	{"\"memory = unlimited\"", UUID_A, {"cores = 50\nburst = 25ms\n"}},
	{"line 1: \"lots\" is no size", UUID_A, {"memory = lots"}},
	{"line 2: \"8gigs\" is no size", UUID_A, {"\nmemory = 8gigs\n"}},
	{"\"-1\" is no size", UUID_A, {"memory = -1"}},
	{"\"\" is no size", UUID_A, {"memory ="}},
	{"\"8Gx\" is no size", UUID_A, {"memory = 8Gx"}},
	{"\"50%\" is no size", UUID_A, {"memory = 50%"}},
	{"is no size",
	 UUID_A,
	 {"memory = Unlimited", "memory = unlimite", "memory = 99999999999999999999",
	  "memory = 8G; cores = 3", "memory = 0.0001G"}},
	{"for no limit, write unlimited", UUID_A, {"memory = 0", "memory = 0.0G"}},
	{"a percentage from 1 to 100",
	 UUID_A,
	 {"cores = 0", "cores = 101", "cores = 0%", "cores = 100.5", "cores = 30%%",
	  "cores = 4294967297"}},
	{"\"half\" is no share", UUID_A, {"cores = half"}},
	{"is no share",
	 UUID_A,
	 {"cores = 30-", "cores = -30", "cores = 0-30", "cores = 60-30", "cores = 30-101",
	  "cores = 30-60-90", "cores = 30-unlimited",
	  "cores = 000000000000000000000000000000030-60"}},
	{"\"25\" is no time that a slice may save: write 0 to 1s", UUID_A, {"burst = 25"}},
	{"write 0 to 1s",
	 UUID_A,
	 {"burst = 1.001s", "burst = 1001ms", "burst = 99999999999999999999s",
	  "burst = 10000000000s", "burst = 0.0001ns", "burst = -1ms", "burst = 1m", "burst = 1ms s",
	  "burst = .5s", "burst = 1.s", "burst = ms", "burst ="}},
	{"or leave the line out", UUID_A, {"burst = default"}},
	{"\"burst\" means nothing here", "slice", {"burst = 25ms"}},
	{"\"there\" is not where a region can lie", "slice", {"region = there"}},
	{"absolute path", "slice", {"region ="}},
	{"is no name",
	 "slice",
	 {"name =", "name = 0123456789012345678901234567890123456789012345678901234567890123"}},
	{"\"perhaps\" is no answer: write yes or no", "slice", {"oversubscribe = perhaps"}},
	{"is no answer", "slice", {"oversubscribe ="}},
	{"\"staff\" is no group: write its number", "slice", {"group = staff"}},
	{"is no group", "slice", {"group = 4294967295", "group = -1", "group ="}},
	{"\"two words\" does not say whether the slice is a gang: write yes or no, a gang's name",
	 "slice",
	 {"gang = two words"}},
	{"write yes or no", "slice", {"gang = found", "gang = true", "gang = Yes", "gang ="}},
	{"is there a second time", "slice", {"gang = yes\ngang = no"}},
	{"line 3: \"memory\" is there a second time",
	 UUID_A,
	 {"memory = 8G\ncores = 1\nmemory = 9G"}},
	{"\"memory 8G\" has no \"=\"", UUID_A, {"memory 8G"}},
	{"\"\" means nothing here: write memory, cores or burst", UUID_A, {"= 8G"}},
	{"means nothing here: write memory, cores or burst", UUID_A, {"gang = yes"}},
	{"\"Memory\" means nothing here", UUID_A, {"Memory = 8G"}},
	{"\"region\" means nothing here", UUID_A, {"region = /x"}},
	{"means nothing here", UUID_A, {"memory#8G=1", "oversubscribe = yes"}},
	{"write region, name, oversubscribe, gang or group", "slice", {"memory = 8G"}},
	{"\"a?b??\" has no", UUID_A, {"a\tb\x01\x7f"}},
};

UNIT_ROWS(refusals)
{
	for (unsigned i = 0; row->texts[i]; i++)
		refuses(row->file, row->texts[i], row->name);
}

/* Whatever a text is cut off behind, what is left of it gives no more memory than the whole. */
UNIT_TEST(test_half_written)
{
	static const char *const texts[] = {
		"memory = 2G\ncores = 50\n", "cores = 50\nburst = 25ms\nmemory = 2048 MiB # so\n",
		"# memory = 8G\nmemory=2147483648\n", "memory = 1.5G", "memory = 2gib\n"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		for (size_t len = 0; len <= strlen(texts[i]); len++) {
			struct policy policy;
			char text[128];

			memset(&policy, 0, sizeof(policy));
			snprintf(text, sizeof(text), "%.*s", (int)len, texts[i]);
			if (policy_parse(UUID_A, text, &policy, NULL) == 0)
				assert_in_range(policy.device[0].memory_bytes, 1, 2 * GIB);
		}
}

UNIT_TEST(test_slice_file)
{
	struct policy policy = parse("slice", "region = /run/a b/x#1.cache # here\nname=training");

	assert_string_equal(policy.region_path, "/run/a b/x#1.cache");
	assert_string_equal(policy.name, "training");
	assert_int_equal(policy.device_count, 0);
}

/* A word as the name of a gang of several slices. */
static void check_gang_name(const char *name, bool good)
{
	char text[128];

	snprintf(text, sizeof(text), "gang = %s", name);
	if (good) {
		struct policy policy = parse("slice", text);

		assert_int_equal(policy.gang.rule, POLICY_GANG_NAMED);
		assert_string_equal(policy.gang.name, name);
	} else {
		refuses("slice", text, "does not say whether the slice is a gang");
	}
}

UNIT_TEST(test_gang_name)
{
	static const char *const good[] = {"train", "job-17.2_b", "0", "1", "-", "yes.", "nobody"};
	static const char *const bad[] = {"...",      ".",   ".train", "a/b", "../a",  "a b",
					  "\xc3\xa4", "a\"", "No",     "YES", "False", "FOUND"};
	char longest[POLICY_GANG_MAX + 2] = "";

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		check_gang_name(good[i], true);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check_gang_name(bad[i], false);
	memset(longest, 'x', POLICY_GANG_MAX);
	check_gang_name(longest, true);
	memset(longest, 'x', POLICY_GANG_MAX + 1);
	check_gang_name(longest, false);
}

UNIT_TEST(test_long_region)
{
	char text[8000];

	memset(text, 'x', sizeof(text));
	memcpy(text, "region = /", 10);
	text[9 + 4095] = '\0';
	assert_int_equal(strlen(parse("slice", text).region_path), 4095);
	text[9 + 4095] = 'x';
	text[9 + 4096] = '\0';
	refuses("slice", text, "xxx...\" is not where a region can lie");
	text[9 + 4096] = 'x';
	text[7000] = '\0';
	refuses("slice", text, "longer than 6144 bytes");
}

UNIT_TEST(test_file_names)
{
	static const char *const names[] = {
		"default",   "0",         "GPU-", "gpu-51300000", "Slice",
		"slice.bak", UUID_A ".o", "MIG",  UUID_A "~",
	};
	char name[200] = "GPU-";

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		refuses(names[i], "", "a file here is named");
	memset(name + 4, '1', 92);
	refuses(name, "", "a file here is named");
	name[VGPU_UUID_LEN - 1] = '\0';
	assert_string_equal(parse(name, "memory = 1").device[0].uuid, name);
}

UNIT_TEST(test_many_devices)
{
	struct fault fault = {""};
	struct policy policy;
	char uuid[32];

	memset(&policy, 0, sizeof(policy));
	for (unsigned i = 0; i < VGPU_DEVICES_MAX; i++) {
		snprintf(uuid, sizeof(uuid), "GPU-%02u", (i * 7) % VGPU_DEVICES_MAX);
		assert_int_equal(policy_parse(uuid, "memory = 1G", &policy, &fault), 0);
	}
	for (unsigned i = 0; i < VGPU_DEVICES_MAX; i++) {
		snprintf(uuid, sizeof(uuid), "GPU-%02u", i);
		assert_int_equal(policy_find(&policy, uuid), i);
	}
	assert_int_equal(policy_find(&policy, "GPU-0"), -1);
	assert_int_equal(policy_find(&policy, "GPU-001"), -1);
	assert_int_equal(policy_parse("GPU-99", "", &policy, &fault), -EINVAL);
	assert_says(fault.text, "at most 16 GPUs");
	policy.device_count--;
	assert_int_equal(policy_parse("GPU-03", "", &policy, &fault), -EINVAL);
	assert_says(fault.text, "has an entry already");
}

/* -- directories ------------------------------------------------------------------------------- */

static void read_refuses(int error, const char *words)
{
	struct fault fault = {""};
	struct policy policy;

	memset(&policy, 0x5a, sizeof(policy));
	assert_int_equal(policy_read(in_root("p"), &policy, &fault), error);
	assert_says(fault.text, words);
	assert_says(fault.text, here.dir);
	assert_int_equal(policy.device_count, 0x5a5a5a5a);
}

UNIT_TEST(test_read)
{
	struct fault fault = {""};
	struct policy policy;

	write_text("p/" UUID_B, "memory = 2G\n");
	write_text("p/" UUID_A, "memory = 1G\ncores = 50\n");
	write_text("p/slice", "region = /x\n");
	write_text("p/." UUID_A, "not read at all");
	make_dir("p/..2024");
	assert_int_equal(policy_read(in_root("p"), &policy, &fault), 0);
	assert_string_equal(fault.text, "");
	assert_int_equal(policy.device_count, 2);
	assert_string_equal(policy.device[0].uuid, UUID_A);
	assert_int_equal(policy.device[0].memory_bytes, GIB);
	assert_int_equal(policy.device[0].cores_pct, 50);
	assert_int_equal(policy.device[1].memory_bytes, 2 * GIB);
	assert_string_equal(policy.region_path, "/x");
	assert_string_equal(policy.name, "");
}

/* As in a Kubernetes ConfigMap: the files are links to a directory that is skipped. */
UNIT_TEST(test_read_links)
{
	struct policy policy;

	make_dir("p");
	make_dir("p/..data");
	write_text("p/..data/" UUID_A, "memory = 1G");
	assert_int_equal(symlink("..data/" UUID_A, in_root("p/" UUID_A)), 0);
	assert_int_equal(policy_read(in_root("p"), &policy, NULL), 0);
	assert_int_equal(policy.device[0].memory_bytes, GIB);
	assert_int_equal(symlink("..data/" UUID_B, in_root("p/" UUID_B)), 0);
	read_refuses(-EIO, "cannot be read (No such file or directory)");
}

UNIT_TEST(test_read_missing)
{
	struct fault fault = {""};
	struct policy policy;

	assert_int_equal(policy_read(in_root("p"), &policy, &fault), -ENOENT);
	assert_string_equal(fault.text, "");
}

UNIT_TEST(test_read_refused)
{
	write_text("p", "memory = 1G");
	read_refuses(-ENOTDIR, "the policy directory");
	assert_int_equal(unlink(in_root("p")), 0);
	make_dir("p");
	read_refuses(-EINVAL, "has no GPU");
	write_text("p/slice", "region = /x");
	read_refuses(-EINVAL, "has no GPU");
	write_text("p/" UUID_A, "# all\nmemory = none\n");
	read_refuses(-EINVAL, "/p/" UUID_A ", line 2: \"none\" is no size");
	write_bytes("p/" UUID_A, "memory = 1G\0\n", 13);
	read_refuses(-EINVAL, "is not text");
	write_text("p/" UUID_A, "");
	read_refuses(-EINVAL, "/p/" UUID_A " does not say how much memory");
	write_text("p/" UUID_A, "memory = 1G");
	write_text("p/slice", "");
	read_refuses(-EINVAL, "/p/slice is empty");
	write_text("p/slice", "region = /x");
	make_dir("p/" UUID_B);
	read_refuses(-EISDIR, "/p/" UUID_B " cannot be read");
	assert_int_equal(rmdir(in_root("p/" UUID_B)), 0);
	write_text("p/README", "");
	read_refuses(-EINVAL, "/p/README: a file here is named");
}

UNIT_TEST(test_read_long_file)
{
	char text[7000];

	memset(text, '#', sizeof(text));
	write_bytes("p/" UUID_A, text, sizeof(text));
	read_refuses(-EINVAL, "longer than 6144 bytes");
}

/* A named pipe or a device in place of a file is not opened: that may wait, or do something. */
UNIT_TEST(test_read_odd_files)
{
	make_dir("p");
	assert_int_equal(mkfifo(in_root("p/" UUID_A), 0600), 0);
	read_refuses(-EINVAL, "/p/" UUID_A " is not a regular file");
	assert_int_equal(unlink(in_root("p/" UUID_A)), 0);
	assert_int_equal(symlink("/dev/null", in_root("p/" UUID_A)), 0);
	read_refuses(-EINVAL, "/p/" UUID_A " is not a regular file");
}

/* As in a container that has it mounted: the name leads to it still, and it lists no files. */
UNIT_TEST(test_read_removed)
{
	struct fault fault = {""};
	struct policy policy;
	char path[64];
	int fd;

	make_dir("p");
	fd = open(in_root("p"), O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	assert_int_equal(rmdir(in_root("p")), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_int_equal(policy_read(path, &policy, &fault), -EIO);
	assert_says(fault.text, "was removed");
	close(fd);
}

static long failing; /* the system call that fails, */
static long failure; /* with this, */
static int passing;  /* after so many that do not */

static long fail_call(long number)
{
	return number == failing && passing-- <= 0 ? failure : 0;
}

static void inject(long number, int after, int error)
{
	failing = number;
	passing = after;
	failure = error;
	sys_fault = fail_call;
}

UNIT_TEST(test_read_faults)
{
	write_text("p/" UUID_A, "memory = 1G");
	inject(SYS_openat, 0, -EACCES);
	read_refuses(-EACCES, "the policy directory");
	inject(SYS_openat, 1, -EACCES);
	read_refuses(-EACCES, "/p/" UUID_A " cannot be read");
	inject(SYS_openat, 1, -ENOENT);
	read_refuses(-EIO, "/p/" UUID_A " cannot be read");
	inject(SYS_getdents64, 0, -EIO);
	read_refuses(-EIO, "the policy directory");
	inject(SYS_read, 0, -EIO);
	read_refuses(-EIO, "read whole or not at all");
	sys_fault = NULL;
}

/* -- writing ----------------------------------------------------------------------------------- */

static struct policy example(void)
{
	struct policy policy;

	memset(&policy, 0, sizeof(policy));
	policy.device_count = 4;
	strcpy(policy.device[0].uuid, "GPU-0");
	policy.device[0].memory_bytes = 8 * GIB;
	strcpy(policy.device[1].uuid, "GPU-1");
	policy.device[1].memory_bytes = 8192 * MIB + 4 * MIB;
	policy.device[1].cores_pct = 30;
	policy.device[1].cores_most_pct = 100;
	policy.device[1].burst_ns = 25000000;
	strcpy(policy.device[2].uuid, "GPU-2");
	policy.device[2].memory_bytes = 12345677;
	policy.device[2].burst_ns = 12345678;
	strcpy(policy.device[3].uuid, "GPU-3");
	policy.device[3].burst_ns = POLICY_NO_BURST;
	strcpy(policy.region_path, "/run/vgpu/a b/region#1");
	strcpy(policy.name, "example");
	policy.oversubscribe = true;
	policy.has_group = true;
	policy.group = 100;
	policy.gang.rule = POLICY_GANG_NAMED;
	strcpy(policy.gang.name, "train-8");
	return policy;
}

UNIT_TEST(test_write)
{
	struct policy policy = example(), back;
	struct fault fault = {""};
	struct stat st;

	make_dir("p");
	umask(077);
	for (int times = 0; times < 2; times++) {
		if (policy_write(in_root("p"), &policy, &fault))
			fail_msg("%s", fault.text);
		memset(&back, 0, sizeof(back));
		assert_int_equal(policy_read(in_root("p"), &back, &fault), 0);
		assert_memory_equal(&policy, &back, sizeof(policy));
	}
	umask(022);
	assert_int_equal(stat(in_root("p/GPU-0"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_int_equal(stat(in_root("p/slice"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
}

static void write_refuses(const struct policy *policy, int error, const char *words)
{
	struct fault fault = {""};

	assert_int_equal(policy_write(in_root("p"), policy, &fault), error);
	assert_says(fault.text, words);
}

static unsigned files_in(const char *name)
{
	DIR *dir = opendir(in_root(name));
	unsigned count = 0;

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count - 2;
}

UNIT_TEST(test_write_faults)
{
	static const long calls[] = {SYS_openat, SYS_write, SYS_fchmod, SYS_fsync, SYS_renameat};
	struct policy policy = example();

	write_refuses(&policy, -ENOENT, "/p/slice cannot be written");
	make_dir("p");
	for (unsigned i = 0; i < 5; i++) {
		inject(calls[i], 0, -ENOSPC);
		write_refuses(&policy, -ENOSPC, "/p/slice cannot be written");
	}
	sys_fault = NULL;
	assert_int_equal(files_in("p"), 0); /* nothing half made is left */
	inject(SYS_write, 2, -ENOSPC);
	write_refuses(&policy, -ENOSPC, "/p/GPU-1 cannot be written");
	sys_fault = NULL;
	assert_int_equal(files_in("p"), 2);
}

UNIT_TEST(test_write_unreadable)
{
	static const char *const paths[] = {"/a\nmemory = 1", "/a #b", " /a", "/a\t"};

	make_dir("p");
	for (unsigned i = 0; i < 4; i++) {
		struct policy policy = example();
		struct fault fault = {""};

		strcpy(policy.region_path, paths[i]);
		assert_int_equal(policy_write(in_root("p"), &policy, &fault), -EINVAL);
		assert_non_null(strstr(fault.text, "cannot stand in a policy"));
	}
}
