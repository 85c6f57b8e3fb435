/* A process whose slice is in a gang of several slices; the other slice's process is played. */
#include "gang.h"
#include "gang_file.h"
#include "pace_fake.h"

static char dir[128], path[160];
static struct gang_file other;  /* as the other process has it open */
static struct gang_member self; /* the other process's */
static struct vgpu_region_device elsewhere[VGPU_DEVICES_MAX];
static struct vgpu_region_turn turns[VGPU_DEVICES_MAX]; /* of the same region */

static bool lives(const struct gang *gang, uint32_t owner)
{
	(void)gang;
	return gang_file_lives(&other, owner);
}

static const struct gang *others_gang(void)
{
	static struct gang gang;

	gang = (struct gang){.kind = GANG_OF_SLICES,
			     .words = &other.file->gang.group,
			     .table = &other.file->gang,
			     .devices = elsewhere,
			     .turns = turns,
			     .slice = 17,
			     .lives = lives};
	return &gang;
}

/* The other slice's process joins with a device. */
static void other_joins(void)
{
	struct fault fault = {""};
	uint32_t owner;
	int entry;

	if (gang_file_open(path, &other, &fault))
		fail_msg("%s", fault.text);
	entry = gang_file_claim(&other, &owner, &fault);
	assert_true(entry >= 0);
	memset(elsewhere, 0, sizeof(elsewhere));
	gang_join_at(others_gang(), &self, (unsigned)entry, owner, 0);
}

static void other_dies(void)
{
	gang_file_forget(&other);
}

static void launch_for(uint64_t ns)
{
	uint64_t until_ns = time_ns + ns;

	while (time_ns < until_ns)
		launch_for_ns(0, 300 * NS_PER_US);
}

static struct vgpu_region_gang *own_words(void)
{
	return &region.file->own.gang;
}

/* Living members of the slice's own gang, as far as words tell. */
static unsigned own_members(void)
{
	unsigned count = 0;

	for (unsigned i = 0; i < own_words()->group.members; i++)
		count += own_words()->member[i].owner != 0;
	return count;
}

static void begin(void)
{
	snprintf(dir, sizeof(dir), "%s/gangs", here.dir);
	snprintf(path, sizeof(path), "%s/train", dir);
	mkdir(dir, 0700);
	joined(50);
	pace_set_named_gang(path);
}

static void end(void)
{
	left();
	pace_set_gang(PACE_GANG_FOUND);
	other_dies();
	unlink(path);
	rmdir(dir);
}

/* The gang's time is charged to the device that the process has, and to no other slice's. */
UNIT_TEST(test_two_slices)
{
	uint64_t began_ns, charged;

	begin();
	other_joins();
	launch_for_ns(0, 300 * NS_PER_US);
	assert_int_equal(gang_members(others_gang()), 2);
	assert_int_equal(own_members(), 0);
	began_ns = time_ns;
	charged = other.file->gang.group.used_ns;
	launch_for(3 * NS_PER_S);
	assert_share("the gang",
		     100.0 * (double)(other.file->gang.group.used_ns - charged) /
			     (double)(time_ns - began_ns),
		     50, 2, 2);
	assert_int_equal(elsewhere[0].bucket.joint_charged, 0);
	assert_true(region.file->own.device[0].bucket.joint_charged > 0);
	assert_int_equal(region.file->own.device[0].gang_until, 0);
	assert_true(region.file->own.device[0].throttled > 1);
	assert_true(region.file->own.device[0].throttled_ns > NS_PER_S);
	assert_int_equal(fake.lines, 0);
	end();
}

/* Alone in the gang, the process is paced by its costs. */
UNIT_TEST(test_dead_member)
{
	struct kernel kernel = {.function = 7, .ns = 100 * NS_PER_US};
	uint64_t used_ns;

	begin();
	other_joins();
	launch_for(NS_PER_S);
	other_dies();
	launch_for(100 * MS);
	assert_int_equal(gang_file_open(path, &other, NULL), 0);
	assert_int_equal(gang_members(others_gang()), 1);
	used_ns = other.file->gang.group.used_ns;
	assert_share("a member alone", share_of(&kernel, 1, NS_PER_S), 50, 1, 1);
	assert_int_equal(other.file->gang.group.used_ns, used_ns);
	end();
}

/* Where the gang cannot be joined, a line says so once, the slice's own gang stands in, and within
 * a second of its cause being mended the gang is joined. */
UNIT_TEST(test_no_directory)
{
	begin();
	rmdir(dir);
	launch_for_ns(0, 300 * NS_PER_US);
	launch_for_ns(1, 300 * NS_PER_US);
	assert_int_equal(own_members(), 2);
	launch_for(3 * NS_PER_S);
	assert_int_equal(fake.lines, 1);
	assert_non_null(strstr(fake.line, path));
	assert_non_null(strstr(fake.line, "its directory is not there; make or mount it"));
	assert_non_null(strstr(fake.line, "until then its slice is throttled by itself"));
	assert_true(own_words()->group.used_ns > NS_PER_S);
	mkdir(dir, 0700);
	launch_for(1100 * MS);
	other_joins();
	assert_int_equal(gang_members(others_gang()), 2);
	assert_int_equal(own_members(), 0);
	assert_int_equal(fake.lines, 1);
	end();
}

UNIT_TEST(test_full)
{
	struct fault fault;
	uint32_t owner;

	begin();
	other_joins();
	while (gang_file_claim(&other, &owner, &fault) >= 0)
		;
	launch_for_ns(0, 300 * NS_PER_US);
	assert_int_equal(fake.lines, 1);
	assert_non_null(strstr(fake.line, "is full: it has 28 members at most"));
	assert_int_equal(own_members(), 1);
	assert_int_equal(region.file->own.slots[region.slot].joint_gang, 0);
	other_dies();
	launch_for(1100 * MS);
	other_joins();
	assert_int_equal(gang_members(others_gang()), 2);
	assert_int_equal(own_members(), 0);
	end();
}

/* A file that is deleted, or truncated, is made once more, and the process is in the new one. */
UNIT_TEST(test_lost)
{
	begin();
	for (unsigned i = 0; i < 2; i++) {
		launch_for(100 * MS);
		if (i)
			assert_int_equal(truncate(path, 0), 0);
		else
			assert_int_equal(unlink(path), 0);
		launch_for(1100 * MS);
		other_joins();
		assert_int_equal(gang_members(others_gang()), 2);
		other_dies();
	}
	assert_int_equal(fake.lines, 0);
	end();
}

/* The policy changes while the process runs. */
UNIT_TEST(test_changes)
{
	char second[192];

	begin();
	launch_for(100 * MS);
	other_joins();
	assert_int_equal(gang_members(others_gang()), 2);
	pace_set_gang(PACE_GANG_NO);
	launch_for(100 * MS);
	assert_int_equal(gang_members(others_gang()), 1);
	assert_int_equal(own_members(), 0);
	pace_set_gang(PACE_GANG_YES);
	launch_for(100 * MS);
	assert_int_equal(own_members(), 1);
	pace_set_named_gang(path);
	launch_for(100 * MS);
	assert_int_equal(gang_members(others_gang()), 2);
	assert_int_equal(own_members(), 0);
	other_dies();

	snprintf(second, sizeof(second), "%s-2", path);
	pace_set_named_gang(second);
	launch_for(100 * MS);
	other_joins();
	assert_int_equal(gang_members(others_gang()), 1);
	other_dies();
	strcpy(path, second);
	other_joins();
	assert_int_equal(gang_members(others_gang()), 2);
	assert_int_equal(region.file->own.slots[region.slot].joint_gang, gang_file_number(&other));
	path[strlen(path) - 2] = '\0';
	unlink(second);
	assert_int_equal(fake.lines, 0);
	end();
}

/* While another process of the slice is in another gang, this one is in the slice's own. */
UNIT_TEST(test_two_gangs)
{
	struct region second = REGION_CLOSED;
	struct fault fault;

	begin();
	assert_int_equal(region_open(region.path, NULL, &second, &fault), 0);
	assert_int_equal(region_claim(&second, &fault), 0);
	second.file->own.slots[second.slot].joint_gang = 99;
	launch_for(1 * NS_PER_S);
	assert_int_equal(own_members(), 1);
	assert_int_equal(fake.lines, 0);
	launch_for(2 * NS_PER_S);
	assert_int_equal(fake.lines, 1);
	assert_non_null(strstr(fake.line, "other programs of the slice are in another gang"));
	second.file->own.slots[second.slot].joint_gang = 0;
	launch_for(200 * MS);
	assert_int_equal(own_members(), 0);
	other_joins();
	assert_int_equal(gang_members(others_gang()), 2);
	region_close(&second);
	end();
}
