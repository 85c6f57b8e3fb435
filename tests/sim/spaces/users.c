/*
 * A tenant whose processes are several users: one that makes the region with a umask that leaves
 * others nothing, one that is root in a user namespace of its own and nobody special outside, and
 * root. All of them are held to one quota.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "holder.h"
#include "spaces.h"

#define QUOTA      (4 * GIB)
#define ONE_USER   1001
#define OTHER_USER 1002

/* Where this user namespace has no other users, all of it is done by one. */
static void become(uid_t uid)
{
	CHECK(setresgid(uid, uid, uid) == 0 || errno == EINVAL);
	CHECK(setresuid(uid, uid, uid) == 0 || errno == EINVAL);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* it is lost with the user */
	prctl(PR_SET_DUMPABLE, 1);        /* and with it what one may write of one's own /proc */
}

static void with_umask(int wire)
{
	become(ONE_USER);
	umask(077);
	hold(wire);
}

static void root_in_its_own(int wire)
{
	become(OTHER_USER);
	CHECK_EQUAL(space_become_root(), 0);
	CHECK_EQUAL(geteuid(), 0);
	hold(wire);
}

/* And is pid 1 besides, as in a container without privileges. */
static void root_in_a_space(int wire)
{
	CHECK_EQUAL(getpid(), 1);
	root_in_its_own(wire);
}

/* What the simulated machine keeps for itself is one user's otherwise. */
static void open_to_all(const char *name)
{
	scene_write(name, "");
	CHECK(chmod(scene_path(name), 0666) == 0);
}

TEST(one_quota)
{
	static void (*const bodies[])(int wire) = {with_umask, root_in_its_own, hold,
						   root_in_a_space};
	enum { COUNT = sizeof(bodies) / sizeof(*bodies) };
	struct member members[COUNT];
	struct stat st;

	CHECK(chmod(scene_dir, 0777) == 0);
	open_to_all("machine");
	open_to_all("machine.pids");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	for (unsigned i = 0; i < COUNT; i++) {
		if (i == COUNT - 1)
			space_begin();
		members[i] = member_start(bodies[i]);
		if (i == COUNT - 1)
			space_end();
		hear(members[i].wire);
		CHECK(stat(scene_path("slice.cache"), &st) == 0);
		CHECK_EQUAL(st.st_mode & 0777, 0666);
		CHECK_EQUAL(ledger_used(0), (i + 1) * EACH);
	}
	for (unsigned i = 0; i < COUNT; i++) {
		CHECK_EQUAL(outside_of(0, members[i].pid), CONTEXT + PIECE);
		CHECK(can_take(&members[i], QUOTA - COUNT * EACH));
		CHECK(!can_take(&members[i], QUOTA - COUNT * EACH + GRANULE));
	}
	for (unsigned i = 0; i < COUNT - 1; i++) { /* the last one, of another user, clears them */
		member_kill(&members[i]);
		CHECK(can_take(&members[COUNT - 1], QUOTA - (COUNT - 1 - i) * EACH));
	}
	tell(members[COUNT - 1].wire, 0);
	member_end(&members[COUNT - 1]);
	CHECK_SOON_EQUAL(ledger_reap(), 0);
	CHECK_EQUAL(ledger_used(0), 0);
}

/* The region is from another user's former life: whoever comes next resets it. */
TEST(restarted_by_another)
{
	struct member member;

	CHECK(chmod(scene_dir, 0777) == 0);
	open_to_all("machine");
	open_to_all("machine.pids");
	for (unsigned i = 0; i < 4; i++) {
		env_set("CUDA_DEVICE_MEMORY_LIMIT", i % 2 ? "2g" : "3g");
		member = member_begin(i % 2 ? root_in_its_own : with_umask);
		CHECK_EQUAL(ledger()->hami.limit[0], (i % 2 ? 2 : 3) * GIB);
		CHECK_EQUAL(ledger_used(0), EACH);
		member_kill(&member);
	}
}

static int play(int argc, char **argv)
{
	const char *obstacle = space_user_obstacle(ONE_USER);

	if (!obstacle)
		obstacle = space_root_obstacle(OTHER_USER);
	if (obstacle)
		SKIP("%s", obstacle);
	return harness_main(argc, argv);
}

int main(int argc, char **argv)
{
	return spaces_main(play, argc, argv);
}
