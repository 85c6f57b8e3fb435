/* Files that are no region: left as they are, and named for what they are. */
#include "region_fixture.h"

#define REGION_SIZE 2097152

static void write_file(const char *path, const void *data, size_t len, size_t size)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	close(fd);
}

static uint64_t checksum(const char *path)
{
	uint64_t sum = 14695981039346656037u;
	int fd = open(path, O_RDONLY);
	uint8_t buf[4096];
	ssize_t len;

	assert_true(fd >= 0);
	while ((len = read(fd, buf, sizeof(buf))) > 0)
		for (ssize_t i = 0; i < len; i++)
			sum = (sum ^ buf[i]) * 1099511628211u;
	close(fd);
	return sum;
}

/* Refused by all three ways in, with the words, and not a byte of it changed. */
static void assert_refused(const char *path, const char *said)
{
	uint64_t before = checksum(path);
	struct region region = REGION_CLOSED;
	struct fault fault;

	for (int way = 0; way < 3; way++) {
		int error;

		fault.text[0] = '\0';
		error = way == 0   ? region_open(path, &one_gib, &region, &fault)
			: way == 1 ? region_open(path, NULL, &region, &fault)
				   : region_view(path, &region, &fault);
		assert_int_equal(error, -EINVAL);
		assert_non_null(strstr(fault.text, path));
		if (!strstr(fault.text, said))
			fail_msg("\"%s\" lacks \"%s\"", fault.text, said);
		assert_int_equal(region.fd, -1);
		assert_null(region.file);
	}
	assert_int_equal(checksum(path), before);
}

UNIT_TEST(test_noise)
{
	static const size_t sizes[] = {
		1, 4096, 2008951, 2008952, 2008953, REGION_SIZE - 1, REGION_SIZE, REGION_SIZE + 1};
	uint8_t *noise = malloc(REGION_SIZE + 1);

	srand(1);
	for (size_t i = 0; i < REGION_SIZE + 1; i++)
		noise[i] = (uint8_t)rand();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		write_file(here.path, noise, sizes[i], sizes[i]);
		assert_refused(here.path, "it holds something else");
	}
	free(noise);
}

/* Zeros at the start are not enough to be one that nobody finished. */
UNIT_TEST(test_zeros_and_then_something)
{
	static const size_t sizes[] = {8192, REGION_SIZE, REGION_SIZE + 4096};
	uint8_t *bytes = calloc(1, REGION_SIZE + 4096);

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		bytes[sizes[i] - 1] = 1;
		write_file(here.path, bytes, sizes[i], sizes[i]);
		assert_refused(here.path, "it holds something else");
		bytes[sizes[i] - 1] = 0;
	}
	free(bytes);
}

UNIT_TEST(test_hami_core)
{
	int32_t header[] = {19920718, 1, 2};

	write_file(here.path, header, sizeof(header), 2008952);
	assert_refused(here.path, "HAMi-core made it");
	write_file(here.path, header, sizeof(header), 1197897);
	assert_refused(here.path, "another version made it");
	write_file(here.path, header, sizeof(header), REGION_SIZE);
	assert_refused(here.path, "another program made it");
}

static void make_region(const char *path)
{
	struct region region = REGION_CLOSED;
	struct fault fault;

	unlink(path);
	assert_int_equal(region_open(path, &one_gib, &region, &fault), 0);
	region_close(&region);
}

static void patch(const char *path, off_t offset, uint32_t word)
{
	int fd = open(path, O_RDWR);

	assert_int_equal(pwrite(fd, &word, sizeof(word), offset), sizeof(word));
	close(fd);
}

/* A word of a region that is another, and what is said of it. */
static const struct {
	const char *name;
	off_t offset;
	uint32_t word;
} words[] = {
	{"HAMi 2.2", 4, 2},
	{"HAMi 1.3", 8, 3},
	{"is of version 2", 2011136 + 8, 2},
	{"is of version 1", 2011136 + 12, 12},
	{"17 devices", 56, 17},
	{"1025 slots", 2008896, 1025},
	{"-1 slots", 2008896, (uint32_t)-1},
};

UNIT_ROWS(words)
{
	make_region(here.path);
	patch(here.path, row->offset, row->word);
	assert_refused(here.path, row->name);
}

UNIT_TEST(test_too_short)
{
	make_region(here.path);
	assert_int_equal(truncate(here.path, REGION_SIZE - 4096), 0);
	assert_refused(here.path, "another version made it");
}

static void assert_never_opens(const char *path, int error, const char *said)
{
	struct region region = REGION_CLOSED;
	struct fault fault = {""};

	assert_int_equal(region_open(path, &one_gib, &region, &fault), error);
	if (!strstr(fault.text, said) || !strstr(fault.text, path))
		fail_msg("\"%s\" lacks \"%s\" or the path", fault.text, said);
	fault.text[0] = '\0';
	assert_int_equal(region_view(path, &region, &fault), error);
	assert_non_null(strstr(fault.text, said));
	assert_int_equal(region.fd, -1);
}

UNIT_TEST(test_directory)
{
	assert_int_equal(mkdir(here.path, 0777), 0);
	assert_never_opens(here.path, -EISDIR, "it is a directory");
	rmdir(here.path);
}

UNIT_TEST(test_symbolic_link)
{
	char target[128];

	snprintf(target, sizeof(target), "%s/target", here.dir);
	make_region(target);
	assert_int_equal(symlink(target, here.path), 0);
	assert_never_opens(here.path, -ELOOP, "symbolic link");
	unlink(target); /* nor is the file made that it points to */
	assert_never_opens(here.path, -ELOOP, "symbolic link");
	assert_int_equal(access(target, F_OK), -1);
}

UNIT_TEST(test_fifo)
{
	assert_int_equal(mkfifo(here.path, 0666), 0);
	assert_never_opens(here.path, -EINVAL, "not a regular file");
}

UNIT_TEST(test_no_directory)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/no/slice.cache", here.dir);
	assert_never_opens(path, -ENOENT, "is the slice set up");
}

static void open_as_nobody(void *arg)
{
	struct region region = REGION_CLOSED;
	struct fault fault = {""};

	CHECK(setuid(65534) == 0);
	CHECK(region_open(arg, &one_gib, &region, &fault) == -EACCES);
	CHECK(strstr(fault.text, "0666"));
}

UNIT_TEST(test_no_permission)
{
	if (geteuid() != 0)
		skip();
	make_region(here.path);
	assert_int_equal(chmod(here.dir, 0777), 0);
	assert_int_equal(chmod(here.path, 0600), 0);
	assert_int_equal(reap_status(spawn(open_as_nobody, here.path)), 0);
}

/* A second user over the first one's file, in a directory like /tmp. */
static void open_as_other(void *arg)
{
	struct region region = REGION_CLOSED;

	CHECK(setuid(65534) == 0);
	CHECK(open_claimed(arg, &one_gib, &region) == 0);
	CHECK(region_charge(&region, 0, REGION_DATA, 1, 0) == 0);
	region_close(&region);
}

UNIT_TEST(test_several_users)
{
	if (geteuid() != 0)
		skip();
	make_region(here.path);
	assert_int_equal(chmod(here.dir, 01777), 0);
	assert_int_equal(reap_status(spawn(open_as_other, here.path)), 0);
}

static void assert_made(const char *path)
{
	struct region region = REGION_CLOSED;
	struct fault fault = {""};
	struct stat st;

	assert_int_equal(region_open(path, NULL, &region, &fault), -EINVAL);
	assert_non_null(strstr(fault.text, "empty"));
	assert_int_equal(open_claimed(path, &one_gib, &region), 0);
	assert_int_equal(count_wrong(&region), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, REGION_SIZE);
	region_close(&region);
}

/* What a process leaves that dies while it makes a region; and what an administrator touches. */
UNIT_TEST(test_unfinished)
{
	static const size_t sizes[] = {0, 1, 4096, 5000, 2008952, REGION_SIZE - 1, REGION_SIZE};
	static const uint64_t making = 0x30304e4f49474552u, made = 0x31304e4f49474552u;
	struct stat st;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		write_file(here.path, "", 0, sizes[i]);
		assert_made(here.path);
		if (sizes[i] < REGION_SIZE) { /* no holes */
			assert_int_equal(stat(here.path, &st), 0);
			assert_true(st.st_blocks * 512 >= REGION_SIZE);
		}
	}
	write_file(here.path, "", 0, REGION_SIZE);
	patch(here.path, 2011136, (uint32_t)making);
	patch(here.path, 2011140, (uint32_t)(making >> 32));
	patch(here.path, 64, 12345);
	assert_made(here.path);
	make_region(here.path);
	patch(here.path, 0, 0); /* HAMi's magic alone is missing */
	patch(here.path, 2011136, (uint32_t)made);
	assert_made(here.path);
}
