/* Slices for containers: made, made otherwise, made by two at once, removed; their mounts. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "container.h"
#include "place.h"
#include "size.h"
#include "slice.h"
#include "sys.h"

#define UUID_A "GPU-51300000-0000-4000-8000-000000000000"
#define UUID_B "GPU-51300000-0000-4000-8000-000000000001"

static const struct policy two = {
	.device_count = 2,
	.device = {{.uuid = UUID_A, .memory_bytes = 2 * GIB, .cores_pct = 30},
		   {.uuid = UUID_B, .memory_bytes = 4 * GIB}},
};
static const struct policy one = {
	.device_count = 1,
	.device = {{.uuid = UUID_B, .memory_bytes = GIB}},
};

static struct container_places places;

static int make_place(void **state)
{
	struct fault fault = {""};

	if (place_make(state))
		return -1;
	setenv("VGPU_CONTAINERS", here.dir, 1);
	return container_find_places(&places, &fault);
}

#undef UNIT_SET_UP
#undef UNIT_TEAR_DOWN
#define UNIT_SET_UP    make_place
#define UNIT_TEAR_DOWN place_remove

static struct container_slice slice_of(const struct policy *policy)
{
	return (struct container_slice){
		.name = "alice", .policy = policy, .library = "/usr/lib/vgpu/libvgpu.so"};
}

static void make(const struct policy *policy)
{
	struct container_slice slice = slice_of(policy);
	struct fault fault = {""};

	if (container_make(&places, &slice, &fault))
		fail_msg("%s", fault.text);
}

/* The mode of the path below the test's directory; 0: nothing is there. */
static unsigned mode_of(const char *name)
{
	char path[256];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", here.dir, name);
	return lstat(path, &st) == 0 ? st.st_mode & 07777 : 0;
}

static void assert_policy(const struct policy *expected)
{
	char path[PATH_MAX];
	struct policy found;

	container_policy_path(&places, "alice", path);
	assert_int_equal(policy_read(path, &found, NULL), 0);
	assert_string_equal(found.region_path, CONTAINER_REGION);
	assert_string_equal(found.name, "alice");
	assert_int_equal(found.device_count, expected->device_count);
	for (unsigned i = 0; i < found.device_count; i++) {
		assert_string_equal(found.device[i].uuid, expected->device[i].uuid);
		assert_int_equal(found.device[i].memory_bytes, expected->device[i].memory_bytes);
		assert_int_equal(found.device[i].cores_pct, expected->device[i].cores_pct);
	}
}

UNIT_TEST(test_makes)
{
	mode_t mask = umask(0077);

	make(&two);
	umask(mask);
	assert_policy(&two);
	assert_int_equal(mode_of("slices/alice"), 0755);
	assert_int_equal(mode_of("slices/alice/" UUID_A), 0644);
	assert_int_equal(mode_of("run"), 0755);
	assert_int_equal(mode_of("run/alice"), 0700);
	assert_int_equal(mode_of("run/alice/shared"), 01777);
	assert_int_equal(mode_of("ld.so.preload"), 0644);
	assert_int_equal(mode_of("tmpfiles.d"), 0); /* it was not there */
}

UNIT_TEST(test_makes_otherwise)
{
	make(&two);
	make(&one);
	assert_policy(&one);
	assert_int_equal(mode_of("slices/alice/" UUID_A), 0);
	make(&two);
	assert_policy(&two);
}

UNIT_TEST(test_must_be_new)
{
	struct container_slice slice = slice_of(&one);

	slice.must_be_new = true;
	assert_int_equal(container_make(&places, &slice, NULL), 0);
	slice.policy = &two;
	assert_int_equal(container_make(&places, &slice, NULL), -EEXIST);
	assert_policy(&one);
}

UNIT_TEST(test_keeps_directories_for_a_start)
{
	struct container_slice slice = slice_of(&two);
	char path[128], gangs[128], expected[512];
	int owner;

	snprintf(path, sizeof(path), "%s/tmpfiles.d", here.dir);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(gangs, sizeof(gangs), "%s/gangs", here.dir);
	assert_int_equal(mkdir(gangs, 0700), 0);
	owner = chown(gangs, 4711, 4712) == 0 ? 4711 : (int)getuid(); /* another user's, for root */
	slice.gangs = gangs;
	assert_int_equal(container_make(&places, &slice, NULL), 0);
	assert_int_equal(mode_of("tmpfiles.d/vgpu-alice.conf"), 0644);
	snprintf(expected, sizeof(expected), "grep -q '^d %s 0700 %d ' %s/vgpu-alice.conf", gangs,
		 owner, path);
	assert_int_equal(system(expected), 0);
	assert_int_equal(container_remove(&places, "alice", NULL), 0);
	assert_int_equal(mode_of("tmpfiles.d/vgpu-alice.conf"), 0);
}

UNIT_TEST(test_removes)
{
	char path[PATH_MAX];

	assert_int_equal(container_remove(&places, "alice", NULL), -ENOENT);
	make(&two);
	container_region_path(&places, "alice", path);
	close(open(path, O_CREAT | O_WRONLY, 0666));
	assert_int_equal(container_remove(&places, "alice", NULL), 0);
	assert_int_equal(mode_of("slices/alice"), 0);
	assert_int_equal(mode_of("run/alice"), 0);
	assert_int_equal(container_remove(&places, "alice", NULL), -ENOENT);
	assert_int_equal(container_remove(&places, "..", NULL), -ENOENT);
}

UNIT_TEST(test_keeps_what_is_not_its_own)
{
	char path[128];
	struct fault fault = {""};

	make(&two);
	snprintf(path, sizeof(path), "%s/run/alice/notes", here.dir);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(container_remove(&places, "alice", &fault), -ENOTEMPTY);
	assert_non_null(strstr(fault.text, "run/alice cannot be removed"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(container_remove(&places, "alice", NULL), 0);
	assert_int_equal(mode_of("run/alice"), 0);
}

/* As after a start of the machine without systemd. */
UNIT_TEST(test_completes_what_is_left)
{
	char command[128];

	make(&two);
	snprintf(command, sizeof(command), "rm -r %s/run", here.dir);
	assert_int_equal(system(command), 0);
	make(&two);
	assert_int_equal(mode_of("run/alice/shared"), 01777);
	assert_int_equal(system(command), 0);
	assert_int_equal(container_remove(&places, "alice", NULL), 0);
	assert_int_equal(mode_of("slices/alice"), 0);
}

/* A tenant, who may write the region's directory, sets traps in it. */
UNIT_TEST(test_follows_no_tenant)
{
	struct container_slice slice = slice_of(&two);
	char trap[160], target[128];
	struct stat before, after;

	make(&two);
	snprintf(target, sizeof(target), "%s/mine", here.dir);
	snprintf(trap, sizeof(trap), "%s/run/alice/shared/turns", here.dir);
	close(open(target, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(stat(target, &before), 0);
	assert_int_equal(symlink(target, trap), 0);
	slice.turns = here.dir;
	container_make(&places, &slice, NULL);
	assert_int_equal(stat(target, &after), 0);
	assert_int_equal(after.st_mode, before.st_mode);
	assert_int_equal(container_remove(&places, "alice", NULL), 0);
	assert_int_equal(access(target, F_OK), 0);
}

UNIT_TEST(test_made_and_removed_at_once)
{
	int failed = 0;

	for (int i = 0; i < 4; i++)
		if (fork() == 0) {
			for (int round = 0; round < 500; round++) {
				struct container_slice slice = slice_of(i % 2 ? &one : &two);
				struct fault fault = {""};
				int error = i < 2 ? container_make(&places, &slice, &fault)
						  : container_remove(&places, "alice", &fault);

				if (error && !(i >= 2 && error == -ENOENT)) {
					fprintf(stderr, "process %d: %s\n", i, fault.text);
					_exit(1);
				}
			}
			_exit(0);
		}
	for (int i = 0; i < 4; i++) { /* all of them, before the test removes their directory */
		int status;

		wait(&status);
		failed += status != 0;
	}
	assert_int_equal(failed, 0);
	make(&one);
	assert_policy(&one);
}

UNIT_TEST(test_mounts)
{
	struct container_slice slice = slice_of(&two);
	struct container_mount mount[CONTAINER_MOUNTS_MAX];
	unsigned count = container_mounts(&places, &slice, mount);

	assert_int_equal(count, 4);
	assert_string_equal(mount[0].host, slice.library);
	assert_string_equal(mount[0].container, CONTAINER_LIBRARY);
	assert_true(mount[0].holds_code);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(mount[i].writable,
				 strcmp(mount[i].container, CONTAINER_REGION_DIR) == 0);
	slice.turns = "/run/turns";
	slice.gangs = "/run/gangs";
	slice.socket = "/run/vgpud/vgpud.sock";
	assert_int_equal(container_mounts(&places, &slice, mount), CONTAINER_MOUNTS_MAX);
	assert_string_equal(mount[6].container, SLICE_SOCKET_DIR);
	assert_string_equal(mount[6].host, "/run/vgpud");
	assert_false(mount[6].writable);
	assert_string_equal(mount[4].container, SLICE_TURNS_MOUNT);
	assert_true(mount[4].writable);
	assert_string_equal(mount[5].host, "/run/gangs");
	for (unsigned i = 4; i < CONTAINER_MOUNTS_MAX;
	     i++) /* the tenant's directory is no part of it */
		assert_int_not_equal(strncmp(mount[i].container, CONTAINER_REGION_DIR "/",
					     strlen(CONTAINER_REGION_DIR "/")),
				     0);
}

UNIT_TEST(test_names)
{
	static const char *const good[] = {"a", "alice", "7", "a.b_c-d", "Train-8"};
	static const char *const bad[] = {"",   ".",   "..",  "a/b",     "-a",
					  "a-", "a b", "a:b", "\xc3\xa4"};
	char longest[CONTAINER_NAME_MAX + 2] = "";

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(container_name_is_good(good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(container_name_is_good(bad[i]));
	memset(longest, 'a', CONTAINER_NAME_MAX);
	assert_true(container_name_is_good(longest));
	longest[CONTAINER_NAME_MAX] = 'a';
	assert_false(container_name_is_good(longest));
}

UNIT_TEST(test_paths_refused)
{
	static const char *const bad[] = {"relative", "/a b", "/a:b", "/a,b", "/a\nb", "/a%b"};
	struct container_slice slice = slice_of(&two);

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fault fault = {""};

		slice.turns = bad[i];
		assert_int_equal(container_make(&places, &slice, &fault), -EINVAL);
		assert_non_null(strstr(fault.text, "cannot be mounted"));
	}
	assert_int_equal(mode_of("run"), 0);
}
