/* Which regions a look did not read, and which entries in a file of turns may be theirs. */
#include <fcntl.h>
#include <sys/stat.h>

#include "place.h"
#include "region.h"
#include "unread.h"

#define GPU   "GPU-00000000-0000-4000-8000-000000000001"
#define OTHER "GPU-00000000-0000-4000-8000-000000000002"

static char path[128], policy_path[128];
static struct slices_one one[3];
static struct overview_slice read_slices[3];
static struct overview overview = {.slice = read_slices, .slices = {.one = one}};

static uint64_t write_file(const char *name, const char *text)
{
	struct stat st;
	FILE *file = fopen(name, "w");

	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(stat(name, &st), 0);
	return st.st_ino;
}

/* One slice with a region, which the look has not read, and the policy; NULL: it has none.
 * Returns the region's inode. */
static uint64_t make(const char *gpu, const char *policy)
{
	char file[192];

	snprintf(path, sizeof(path), "%s/region", here.dir);
	snprintf(policy_path, sizeof(policy_path), "%s/policy", here.dir);
	one[0] = (struct slices_one){.region_path = path,
				     .policy_path = policy ? policy_path : NULL};
	overview.slices.count = 1;
	overview.count = 0;
	if (policy) {
		assert_int_equal(mkdir(policy_path, 0700), 0);
		snprintf(file, sizeof(file), "%s/%s", policy_path, gpu);
		write_file(file, policy);
	}
	return write_file(path, "");
}

/* A key that a region with the inode can have. */
static uint64_t key_of(uint64_t inode)
{
	const struct region region = {.inode = inode, .device = 7, .made = 9};

	return region_key(&region);
}

/* The quota of the slice whose region may have the key, for GPU; -1: there is no such region. */
static int find(uint64_t key)
{
	struct unread unread;
	unsigned at = 0, pct = 0;
	bool found;

	unread_list(&overview, &unread);
	assert_false(unread.failed);
	found = unread_next(&unread, key, GPU, &at, &pct) != NULL;
	unread_free(&unread);
	return found ? (int)pct : -1;
}

UNIT_TEST(test_policy)
{
	static const struct {
		const char *gpu, *policy;
		int found;
	} rows[] = {
		{NULL, NULL, 0},
		{GPU, "memory = 1G\ncores = 30\n", 30},
		{GPU, "memory = 1G\ncores = 100\n", 0},
		{GPU, "memory = 1G\n", 0},
		{OTHER, "memory = 1G\ncores = 30\n", -1},
		{GPU, "damaged\n", 0},
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t inode = make(rows[i].gpu, rows[i].policy);

		assert_int_equal(find(key_of(inode)), rows[i].found);
		assert_int_equal(find(key_of(inode + 1)), -1);
		place_empty();
	}
}

/* A slice whose region's file does not exist has no entry. */
UNIT_TEST(test_no_region)
{
	uint64_t inode = make(NULL, NULL);

	assert_int_equal(unlink(path), 0);
	assert_int_equal(find(key_of(inode)), -1);
}

/* A region whose file cannot be looked at may have any inode. */
UNIT_TEST(test_no_inode)
{
	char beyond[160];
	uint64_t inode = make(NULL, NULL);

	snprintf(beyond, sizeof(beyond), "%s/region", path);
	one[0].region_path = beyond; /* ENOTDIR */
	assert_int_equal(find(key_of(inode + 1)), 0);
	place_empty();
}

/* A region that was read has its entry by its key. One that could not be read is listed with the
 * reason. */
UNIT_TEST(test_read)
{
	uint64_t inode = make(NULL, NULL);
	char why[] = "a reason";
	struct unread unread;

	overview.count = 1;
	read_slices[0] = (struct overview_slice){.one = &one[0]};
	assert_int_equal(find(key_of(inode)), -1);
	read_slices[0].why = why;
	assert_int_equal(find(key_of(inode)), 0);
	unread_list(&overview, &unread);
	assert_string_equal(unread.region[0].why, "a reason");
	unread_free(&unread);
	place_empty();
}
