/*
 * One region by several paths, as mount namespaces have them; file systems that are full or
 * read-only; and processes whose /proc is not there, or is that of a pid namespace in which they
 * are not: they are counted, found dead and find others dead all the same; only the host's pid is
 * not known then.
 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "holder.h"
#include "spaces.h"

#define QUOTA (4 * GIB)

static void set_quota(void)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
}

/* -- paths ------------------------------------------------------------------------------------ */

static void by_bound_directory(int wire)
{
	space_own_mounts();
	CHECK(mount(scene_dir, scene_path("directory"), NULL, MS_BIND, NULL) == 0);
	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path("directory/slice.cache"));
	hold(wire);
}

static void by_bound_file(int wire)
{
	space_own_mounts();
	CHECK(mount(scene_path("slice.cache"), scene_path("file"), NULL, MS_BIND, NULL) == 0);
	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path("file"));
	hold(wire);
}

static void by_relative_path(int wire)
{
	CHECK(chdir(scene_dir) == 0);
	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", "./slice.cache");
	hold(wire);
}

TEST(by_several_paths)
{
	static void (*const bodies[])(int wire) = {hold, by_bound_directory, by_bound_file,
						   by_relative_path};
	enum { COUNT = sizeof(bodies) / sizeof(*bodies) };
	struct member members[COUNT];

	set_quota();
	CHECK(mkdir(scene_path("directory"), 0700) == 0);
	scene_write("file", "");
	for (unsigned i = 0; i < COUNT; i++) {
		members[i] = member_begin(bodies[i]);
		CHECK_EQUAL(ledger_used(0), (i + 1) * EACH);
	}
	CHECK_SOON_EQUAL(ledger_reap(), COUNT);
	for (unsigned i = 0; i < COUNT; i++) {
		CHECK(can_take(&members[i], QUOTA - COUNT * EACH));
		CHECK(!can_take(&members[i], QUOTA - COUNT * EACH + GRANULE));
	}
	for (unsigned i = 0; i < COUNT - 1; i++) { /* the last one meets the dead */
		member_kill(&members[i]);
		CHECK(can_take(&members[COUNT - 1], QUOTA - (COUNT - 1 - i) * EACH));
	}
	tell(members[COUNT - 1].wire, 0);
	member_end(&members[COUNT - 1]);
	CHECK_SOON_EQUAL(ledger_reap(), 0);
}

/* -- file systems ----------------------------------------------------------------------------- */

static void start_in_vain(void)
{
	CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
}

static void start(void)
{
	CHECK_OK(cuInit(0));
}

static void refused_with(const char *words)
{
	struct said said = member_listen(start_in_vain);

	fputs(said.status ? said.err : "", stderr);
	CHECK_EQUAL(said.status, 0);
	CHECK_EQUAL(lines_in(said.err), 1);
	if (!strstr(said.err, words))
		check_failed(__FILE__, __LINE__, said.err);
}

/* One of 1 MiB, which is too little for a region. */
static void on_small_disks(int wire)
{
	const char *at = scene_path("directory");
	struct stat st;

	(void)wire;
	space_own_mounts();
	CHECK(mkdir(at, 0700) == 0);
	CHECK(mount("none", at, "tmpfs", 0, "size=1m") == 0);
	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path("directory/slice.cache"));
	refused_with("the file system is full; a region needs 2 MiB there");
	CHECK(stat(scene_path("directory/slice.cache"), &st) == 0);
	CHECK_EQUAL(st.st_size, 0); /* what there was of it is given back */
	CHECK(mount("none", at, NULL, MS_REMOUNT, "size=3m") == 0);
	CHECK_EQUAL(member_listen(start).status, 0);
	CHECK(mount("none", at, NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0);
	refused_with("the file system is read-only; mount the slice's directory read-write");
}

TEST(small_disks)
{
	struct member member;

	set_quota();
	member = member_start(on_small_disks);
	member_end(&member);
}

/* -- /proc ------------------------------------------------------------------------------------ */

static void without_proc(int wire)
{
	space_own_mounts();
	CHECK(mount("none", "/proc", "tmpfs", 0, NULL) == 0);
	CHECK(access("/proc/self", F_OK) != 0);
	hold(wire);
}

/* In a pid namespace, whose /proc others see from now on. */
static void mount_proc(int wire)
{
	tell(wire, mount("none", "/proc", "proc", 0, NULL) == 0);
	for (;;)
		pause();
}

static void with_anothers_proc(int wire)
{
	struct member other;

	space_own_mounts();
	space_begin();
	other = member_start(mount_proc);
	space_end();
	if (!hear(other.wire)) { /* a container's /proc has parts hidden, and no other may show them
				  */
		tell(wire, 0);
		return;
	}
	CHECK(access("/proc/1", F_OK) == 0 && access("/proc/self", F_OK) != 0);
	hold(wire);
}

static int hostpid_of(pid_t pid)
{
	int slot = ledger_slot(pid);

	CHECK(slot >= 0);
	return ledger()->hami.slots[slot].hostpid;
}

/* That member and a plain one, in both directions: who dies is found dead by the other. */
static void beside_a_plain_one(void (*body)(int wire))
{
	struct member plain, strange;

	set_quota();
	strange = member_start(body);
	if (!hear(strange.wire)) {
		printf("left out: no /proc can be mounted here\n");
		member_end(&strange);
		return;
	}
	for (unsigned round = 0; round < 3; round++) {
		plain = member_begin(hold);
		CHECK_EQUAL(ledger_used(0), 2 * EACH);
		CHECK_EQUAL(hostpid_of(strange.pid), 0);
		CHECK_EQUAL(hostpid_of(plain.pid), space_is_host() ? plain.pid : 0);
		CHECK(!can_take(&strange, QUOTA - EACH)); /* the living is not taken for dead */
		CHECK(!can_take(&plain, QUOTA - EACH));
		if (round == 2)
			break;
		member_kill(&plain);
		CHECK(can_take(&strange, QUOTA - EACH));
		CHECK_EQUAL(ledger_used(0), EACH);
	}
	member_kill(&strange);
	CHECK(can_take(&plain, QUOTA - EACH));
	CHECK_EQUAL(ledger_used(0), EACH);
	member_finish(&plain);
	CHECK_SOON_EQUAL(ledger_reap(), 0);
}

TEST(no_proc)
{
	beside_a_plain_one(without_proc);
}

TEST(anothers_proc)
{
	beside_a_plain_one(with_anothers_proc);
}

static int play(int argc, char **argv)
{
	const char *obstacle = space_mounts_obstacle();

	if (obstacle)
		SKIP("%s", obstacle);
	return harness_main(argc, argv);
}

int main(int argc, char **argv)
{
	return spaces_main(play, argc, argv);
}
